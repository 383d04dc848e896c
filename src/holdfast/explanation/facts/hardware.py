"""Devices and volume attachments of a node, for one pod: what is free, and which requests would fit.
What the pod's own reservations keep there counts as free.
"""

from collections import Counter
from collections.abc import Iterator
from operator import ge

from holdfast.api import names
from holdfast.api.kinds import KINDS
from holdfast.api.plurals import number_of, plural
from holdfast.explanation.facts.capacity import row_of
from holdfast.explanation.facts.own_reservations import own_entries
from holdfast.explanation.phrases import amounts_text
from holdfast.explanation.report import few
from holdfast.scheduler.cluster.records import PodRecord
from holdfast.scheduler.cluster.slots import Amounts
from holdfast.scheduler.managers.devices.device_table import TypeTable
from holdfast.scheduler.managers.devices.requests import DEVICE_RESOURCES, GPU, TYPE_OF, WHOLE, Share
from holdfast.snapshot.cluster_snapshot import ClusterSnapshot, shown

NO_GPU_LEFT = "no GPU has enough left"
_HINT = names.DEVICE_ALLOCATE_HINT.rpartition("/")[2]
_NODES = 3
_DEVICES = 8
_CSI_NODE = KINDS["storage.k8s.io/v1", "CSINode"]

Lowered = dict[str, tuple[int, int]]
"""By resource, the amount requested and the amount that would fit."""


# Devices


def device_details(
    snapshot: ClusterSnapshot, pod: PodRecord, nodes: list[str], only_health: bool = False
) -> Iterator[str]:
    """What is free on each device, devices that are not healthy, and whether some are excluded. What is
    free says nothing where no node has the resource: `only_health`."""
    devices = snapshot.cluster.managers.devices
    search = devices.valid_search(pod.cls)
    if search is None:
        return
    for share in search.shares:
        table = devices.tables.get(share.type)
        for name in nodes[:_NODES] if table is not None else ():
            assert table is not None
            row = row_of(snapshot, name)
            infos = table.infos.get(row) or {}
            sick = sum(not info.health for info in infos.values())
            if sick:
                yield f"{name}: {_sick_text(sick, len(infos), share.type)}"
            if len(infos) > sick and not only_health:
                yield _free_text(snapshot, pod, name, table, share)
    if names.DEVICE_ALLOCATE_HINT in pod.cls.annotations:
        yield f"its annotation {names.DEVICE_ALLOCATE_HINT} restricts which devices it may use"


def too_few_gpus_text(snapshot: ClusterSnapshot, pod: PodRecord, node: str) -> str:
    """Why a node has too few GPUs for the pod, in a few words: none is healthy, the pod's hint selects
    others, or too little is left on them."""
    devices, row = snapshot.cluster.managers.devices, row_of(snapshot, node)
    search, table = devices.valid_search(pod.cls), devices.tables.get(GPU)
    share = next((each for each in search.shares if each.type == GPU), None) if search else None
    if search is None or share is None or table is None:
        return NO_GPU_LEFT
    infos = table.infos.get(row) or {}
    healthy = {minor for minor, info in infos.items() if info.health}
    if infos and not healthy:
        return "no GPU is healthy"
    selector = search.hints.of(GPU).selector
    allowed = {minor for minor in healthy if selector is None or selector.matches(infos[minor].labels)}
    if healthy and not allowed:
        return f"no GPU matches its {_HINT}"
    free = zip(table.minors.get(row) or (), _free(snapshot, pod, table, row), strict=False)
    enough = {minor for minor, left in free if all(map(ge, left, share.each))}
    if enough & allowed:
        few_left = len(enough & allowed) < share.number
        return "too few GPUs have enough left" if few_left else "no GPU that it may use has enough left"
    return f"no GPU that its {_HINT} selects has enough left" if enough & healthy else NO_GPU_LEFT


def closest_by_devices(snapshot: ClusterSnapshot, pod: PodRecord, nodes: list[str]) -> str:
    """`closest: n2, short of 1 gpu device`, of nodes with enough of everything else; empty if there are
    none."""
    devices = snapshot.cluster.managers.devices
    search = devices.valid_search(pod.cls)
    found = []
    for name in nodes if search is not None else ():
        assert search is not None
        row, short = row_of(snapshot, name), dict[str, int]()
        for share in search.shares:
            if lacking := _devices_lacking(snapshot, pod, row, share):
                short[share.type] = lacking
        if short:
            found.append((sum(short.values()), name, short))
    if not found:
        return ""
    _, name, short = min(found)
    lacks = ", ".join(number_of(count, f"{kind} device") for kind, count in sorted(short.items()))
    return f"closest: {name}, short of {lacks}"


def lacks_text(snapshot: ClusterSnapshot, pod: PodRecord, row: int, lacks: Amounts) -> str:
    """`2 cpu, 60 koordinator.sh/gpu`: what is short on a row; of devices, what is short on one of them
    rather than in sum, or how many devices if the pod requests several."""
    devices, slots = snapshot.cluster.managers.devices, snapshot.cluster.nodes.slots
    search, lowered = devices.valid_search(pod.cls), device_requests(snapshot, pod, row)
    others, texts = dict(lacks), list[str]()
    for share in search.shares if search is not None else ():
        lacking = _devices_lacking(snapshot, pod, row, share)
        own = [slot for slot, _ in pod.cls.requests if TYPE_OF.get(slots.name(slot)) == share.type]
        table = devices.tables.get(share.type)
        if not lacking or table is None or not table.minors.get(row):
            continue
        for slot in own:
            others.pop(slot, None)
        parts = {name: sizes for name, sizes in lowered.items() if TYPE_OF.get(name) == share.type}
        if share.number == 1 and parts and not any(name in WHOLE for name in parts):
            texts += [f"{shown(name, now - then)} {name}" for name, (now, then) in parts.items()]
        else:
            texts.append(number_of(lacking, f"{share.type} device"))
    return ", ".join(filter(None, [amounts_text(snapshot, others), *texts]))


def _devices_lacking(snapshot: ClusterSnapshot, pod: PodRecord, row: int, share: Share) -> int:
    """How many devices more than have enough on a row the pod requests."""
    table = snapshot.cluster.managers.devices.tables.get(share.type)
    free = _free(snapshot, pod, table, row) if table is not None else []
    enough = sum(
        all(has >= asked for has, asked in zip(each, share.each, strict=False)) for each in free
    )
    return max(0, share.number - enough)


def _sick_text(sick: int, count: int, kind: str) -> str:
    return f"{sick} of {number_of(count, f'{kind} device is', f'{kind} devices are')} not healthy"


def _free_text(
    snapshot: ClusterSnapshot, pod: PodRecord, node: str, table: TypeTable, share: Share
) -> str:
    left = _free(snapshot, pod, table, row_of(snapshot, node))
    wanted = [i for i, amount in enumerate(share.each) if amount] or [0]
    # The resource of which the fewest devices have enough.
    line = min(wanted, key=lambda i: sum(each[i] >= share.each[i] for each in left))
    resource = DEVICE_RESOURCES[share.type][line]
    free = sorted(each[line] for each in left)
    amounts = few([shown(resource, max(0, each)) for each in reversed(free)], _DEVICES)
    number = "one" if share.number == 1 else f"each of {share.number}"
    return (
        f"{node}: {resource} free on its {share.type} devices: {amounts}; it requests "
        f"{shown(resource, share.each[line])} on {number}"
    )


def _free(
    snapshot: ClusterSnapshot, pod: PodRecord, table: TypeTable, row: int
) -> list[tuple[int, ...]]:
    """What is free on each device of a row, by resource."""
    entries = [entry.index for entry in own_entries(snapshot, pod, row)]
    places = range(len(table.minors.get(row) or ()))
    lines = range(len(DEVICE_RESOURCES[table.kind]))

    def left(line: int, place: int) -> int:
        known = [each for each in entries if each < table.left.shape[1]]
        return max((int(table.left[line, each, place]) for each in known), default=0)

    return [
        tuple(int(table.free[line, row, place]) + left(line, place) for line in lines)
        for place in places
    ]


def devices_on(snapshot: ClusterSnapshot, row: int) -> Iterator[str]:
    """What is free on each device of a row, and how many are not healthy."""
    for kind, table in sorted(snapshot.cluster.managers.devices.tables.items()):
        infos = table.infos.get(row) or {}
        sick = sum(not info.health for info in infos.values())
        if sick:
            yield _sick_text(sick, len(infos), kind)
        if len(infos) > sick:
            resource = DEVICE_RESOURCES[kind][0]
            places = range(len(table.minors.get(row) or ()))
            free = [max(0, int(table.free[0, row, place])) for place in places]
            amounts = few([shown(resource, each) for each in free], _DEVICES)
            yield f"{resource} free on its {kind} devices: {amounts}"


def device_requests(snapshot: ClusterSnapshot, pod: PodRecord, row: int) -> Lowered:
    """Smaller requests for devices that fit what is free on the row; empty if the requests fit."""
    devices = snapshot.cluster.managers.devices
    search = devices.valid_search(pod.cls)
    slots = snapshot.cluster.nodes.slots
    found: Lowered = {}
    for share in search.shares if search is not None else ():
        table = devices.tables.get(share.type)
        free = _free(snapshot, pod, table, row) if table is not None else []
        asked = {slots.name(slot): amount for slot, amount in pod.cls.requests}
        wanted = [i for i, amount in enumerate(share.each) if amount]
        if not free or not wanted:
            continue
        best = max(free, key=lambda each: min(each[i] / share.each[i] for i in wanted))
        unused = sum(all(each[i] >= share.each[i] for i in wanted) for each in free)
        resources = DEVICE_RESOURCES[share.type]
        for name, amount in asked.items():
            if name in WHOLE:
                then = unused
            elif name in resources and share.number == 1:
                then = best[resources.index(name)]
            elif name == names.GPU_PERCENT and share.number == 1:
                then = min(best[i] for i in wanted)
            else:
                continue
            if 0 <= then < amount:
                found[name] = (amount, then)
    return found


# Volumes


def attach_details(snapshot: ClusterSnapshot, pod: PodRecord, nodes: list[str]) -> Iterator[str]:
    """The limits of CSI drivers that the pod's volumes exceed."""
    volumes = snapshot.cluster.volumes
    uses = {volumes.identity(claim.key) for claim in volumes.wanted(pod.cls).claims} - {None}
    wanted = Counter(use.driver for use in uses if use is not None)
    volumes.attached.refresh()
    for name in nodes[:_NODES]:
        row, spec = row_of(snapshot, name), (snapshot.find(_CSI_NODE, name) or {}).get("spec") or {}
        for driver in spec.get("drivers") or ():
            limit, needs = (driver.get("allocatable") or {}).get("count"), wanted[driver.get("name")]
            left = volumes.attached.left(driver.get("name"))
            if not needs or limit is None or left is None:
                continue
            if needs <= left[row]:
                continue
            used = max(0, limit - int(left[row]))
            text = f"{name} can attach {number_of(limit, 'volume')} of CSI driver {driver['name']}"
            if not limit:
                text = f"{name} can attach no volumes of CSI driver {driver['name']}"
            elif used >= limit:
                text += f", and {plural(limit, 'it is', 'all are')} in use"
            else:
                text += f", and {used} {plural(used, 'is', 'are')} in use" if used else ""
                text += f"; the pod has {needs}"
            yield text
