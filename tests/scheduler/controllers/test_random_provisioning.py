"""Random lives of pods that bring templates, with provisioners that fail and schedulers that restart:
nothing is oversold, no id has two reservations, and in the end nothing is set aside for nobody."""

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harness.objects import ID, Raw, node, pod, requesting, reservation
from harness.world import World

NODES = ("n0", "n1")
PODS = tuple(f"p{i}" for i in range(4))

_cpus = st.sampled_from(("500m", "1", "2", "3"))
_sizes = st.fixed_dictionaries(
    {},
    optional={
        "recommendedSize": st.fixed_dictionaries({"cpu": _cpus}),
        "roundup": st.fixed_dictionaries({"cpu": st.sampled_from(("1", "2"))}),
    },
)
_steps = st.one_of(
    st.tuples(st.just("ask"), st.sampled_from(PODS), st.sampled_from("ab"), _cpus, _sizes),
    st.tuples(st.just("pod"), st.sampled_from(("q0", "q1")), st.sampled_from("ab"), _cpus),
    st.tuples(st.just("delete"), st.sampled_from((*PODS, "q0", "q1"))),
    st.tuples(st.just("node"), st.sampled_from(NODES), st.sampled_from(("2", "4", "8"))),
    st.tuples(st.just("node gone"), st.sampled_from(NODES)),
    st.tuples(st.just("drop reservations")),
    st.tuples(st.just("make"), st.sampled_from(PODS), _cpus),
    st.tuples(st.just("restart")),
    st.tuples(st.just("fail"), st.booleans()),
    st.tuples(st.just("refuse"), st.sampled_from(PODS)),
    st.tuples(st.just("wait"), st.sampled_from((1, 20, 70, 200))),
)


@given(
    st.lists(_steps, max_size=14),
    st.sampled_from(("builtin", "apart", "external")),
    st.sampled_from(("Requeue", "Bind")),
)
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_nothing_is_oversold_or_left_behind(
    steps: list[tuple[object, ...]], provisioner: str, on_failure: str
) -> None:
    world = World(
        node("n0", cpu="4"),
        provisioner=provisioner,
        onFailure=on_failure,
        provisionTimeout="60s",
        virtualRetention="30s",
    )
    for step in steps:
        play(world, step)
        ids = [id for made in world.reservations() if (id := made["metadata"]["labels"].get(ID))]
        if provisioner != "external":
            assert len(ids) == len(set(ids))
    world.refuse.clear()
    for name in (*PODS, "q0", "q1"):
        if ("Pod", name) in world.objects:
            world.delete("Pod", name)
    virtuals = world.scheduler.cluster.virtuals
    assert not virtuals.by_id and not virtuals.waits
    for name in [name for kind, name in world.objects if kind == "Reservation"]:
        world.delete("Reservation", name)
    assert world.reserved("n0") == world.reserved("n1") == 0


def play(world: World, step: tuple[object, ...]) -> None:
    match step:
        case ("ask", str(name), str(app), str(cpu), dict(sizes)):
            if ("Pod", name) not in world.objects:
                world.put(requesting(name, app=app, cpu=cpu, uid=_uid(world, name), **sizes))
        case ("pod", str(name), str(app), str(cpu)):
            if ("Pod", name) not in world.objects:
                world.put(pod(name, app=app, cpu=cpu, uid=_uid(world, name)))
        case ("delete", str(name)):
            if ("Pod", name) in world.objects:
                world.delete("Pod", name)
        case ("node", str(name), str(cpu)):
            if ("Node", name) not in world.objects:
                world.put(node(name, cpu=cpu))
        case ("node gone", str(name)):
            _remove_node(world, name)
        case ("drop reservations",):
            for _, name in [key for key in world.objects if key[0] == "Reservation"]:
                world.delete("Reservation", name)
        case ("make", str(name), str(cpu)):
            _make(world, name, cpu)
        case ("restart",):
            world.restart()
            world.settle()
        case ("fail", bool(cannot)):
            world.creation_refusal = "no" if cannot else ""
        case ("refuse", str(name)):
            if ("Pod", name) in world.objects:
                world.refuse.add(world.objects["Pod", name]["metadata"]["uid"])
        case ("wait", int(seconds)):
            world.wait(seconds)


def _uid(world: World, name: str) -> str:
    return f"{name}-{world.number()}"


def _remove_node(world: World, name: str) -> None:
    if ("Node", name) not in world.objects:
        return
    there = [n for k, n in world.objects if k == "Pod" and world.node_of(n) == name]
    world.delete("Node", name)
    for each in there:
        world.delete("Pod", each)


def _make(world: World, name: str, cpu: str) -> None:
    """A reservation by somebody else for what a pod asks for."""
    if ("Pod", name) not in world.objects or not world.requirement(name):
        return
    raw: Raw = reservation(
        f"r{world.number()}",
        cpu=cpu,
        labels={ID: world.requirement_id(name)},
        allocateOnce=False,
        allocatePolicy="Aligned",
    )
    if not any(
        m["metadata"]["labels"].get(ID) == world.requirement_id(name) for m in world.reservations()
    ):
        world.put(raw)
