"""The dashboard in a real browser, on a cluster of `holdfast up`."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pytest

from harness.device_objects import device, gpu
from harness.objects import pod
from harness.up_process import PODS, Running
from holdfast.api.names import HOLD_LABEL
from holdfast.api.times import format_time
from web.browser import browser, chromium, violations
from web.large_cluster import NODES, PENDING, large_dashboard, large_scheduler
from web.viewed_cluster import reservation

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

RESERVATIONS = "/apis/scheduling.koordinator.sh/v1alpha1/reservations"
DEVICES = "/apis/scheduling.koordinator.sh/v1alpha1/devices"
QUEUE = "{apiVersion: scheduling.volcano.sh/v1beta1, kind: Queue, metadata: {name: team}}"
GPU = """
apiVersion: v1
kind: Node
metadata: {name: gpu-1, labels: {accelerator: h100, topology.kubernetes.io/zone: ab}}
spec:
  taints:
    - {key: dedicated, value: ml, effect: NoSchedule}
    - {key: example.com/team, value: ml, effect: NoExecute}
status: {capacity: {cpu: "16", memory: 64Gi, pods: "110", nvidia.com/gpu: "8"}}
"""


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    chromium()
    folder = tmp_path_factory.mktemp("up")
    manifests = folder / "m.yaml"
    manifests.write_text(f"{QUEUE}\n---\n{GPU}")
    with Running(folder, "--nodes", "3", "--apply", str(manifests)) as running:
        running.client.create(PODS, pod("huge", "40", schedulerName="default-scheduler"))
        running.client.create(RESERVATIONS, reservation("peak", "4", allocateOnce=False))
        yield running
        assert running.stop() == (0, "")


@pytest.fixture(scope="module")
def chrome() -> Iterator[Browser]:
    with browser() as opened:
        yield opened


@pytest.fixture
def page(chrome: Browser, up: Running) -> Iterator[Page]:
    yield from open_page(chrome, address(up))


def address(up: Running) -> str:
    found = re.search(r"http://127\.0\.0\.1:\d+/\?token=\w+", "\n".join(up.printed))
    assert found is not None, up.printed
    return found[0]


def open_page(chrome: Browser, address: str, fails: bool = False, **options: Any) -> Iterator[Page]:
    """A page that fails the test if a script fails or anything from elsewhere is asked for; with
    `fails`, failed requests are expected."""
    context = chrome.new_context(viewport={"width": 1280, "height": 800}, **options)
    context.set_default_timeout(15_000)
    page = context.new_page()
    problems: list[str] = []
    page.on("console", lambda m: problems.append(m.text) if m.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: problems.append(str(error)))
    origin = address.partition("/?")[0]
    page.on("request", lambda r: None if r.url.startswith(origin) else problems.append(r.url))
    page.goto(address)
    page.wait_for_selector("html[data-ready]")
    yield page
    context.close()
    problems = [each for each in problems if not (fails and "Failed to load resource" in each)]
    assert not problems, problems


def until(page: Page, condition: str) -> None:
    """Waits for a condition in the page. `wait_for_function` needs eval, which the page forbids."""
    give_up_at = time.monotonic() + 15
    while not page.evaluate(condition):
        assert time.monotonic() < give_up_at, f"{condition}: {page.url}"
        page.wait_for_timeout(20)


@contextmanager
def extra_node(up: Running, name: str, more: dict[str, str] | None = None) -> Iterator[dict[str, str]]:
    """A node with 8 CPUs until the end of the block; yields the selector of its pods."""
    amounts = {"cpu": "8", "memory": "32Gi", "pods": "110", **(more or {})}
    status = {"capacity": amounts, "allocatable": amounts}
    labels = {"kubernetes.io/hostname": name}
    raw = {"metadata": {"name": name, "labels": labels}, "status": status}
    up.client.create("/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", **raw})
    yield labels
    up.client.ask("DELETE", f"/api/v1/nodes/{name}")


def row(page: Page, name: str) -> Any:
    return page.locator(".rows .row", has_text=name).first


def test_the_token_leaves_the_address(page: Page) -> None:
    assert "token" not in page.url
    assert page.title() == "Nodes · Holdfast"
    assert page.locator("#live").inner_text() == "live"


def test_nodes_have_bars_and_gpus_have_cells(page: Page) -> None:
    assert row(page, "node-1").locator("svg.bar").count() == 2
    assert row(page, "gpu-1").locator("rect.cell").count() == 8
    assert "tainted" in row(page, "gpu-1").inner_text()
    page.fill("#filter", "has:gpu accelerator=h100")
    until(page, "document.querySelectorAll('.rows .row').length === 1")
    assert "filter=has%3Agpu" in page.url
    share = (
        "document.querySelector('.list-box').clientHeight / document.querySelector('main').clientHeight"
    )
    assert page.evaluate(share) > 0.9, "the note on the filter takes one line"
    page.fill("#filter", "nothing-like-it")
    page.get_by_text("No node matches the filter.").wait_for()


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        ("is:foo", "is:foo is unknown; known are is:cordoned, is:tainted"),
        ("node has:nothing", "has:nothing is unknown"),
        ("cpu>lots", "cpu>lots is not a comparison with a percentage, such as cpu>80."),
        ("cores>=5", "cores is not a resource; known are cpu, memory"),
        (
            "cpu=80",
            "cpu=80 looks for a label or taint; a share in percent is compared as in cpu>=80.",
        ),
        (
            "gpu>0",
            "gpu>0 compares the share that is requested, reserved or held, in percent; has:gpu finds",
        ),
        ("-is:cordoned", "-is:cordoned is not a filter: words cannot be negated."),
        ("zone!=a", "zone!=a is not a filter: words cannot be negated."),
        ("-cpu>80", "-cpu>80 is not a filter: words cannot be negated."),
    ],
)
def test_a_filter_that_is_no_test_says_so(page: Page, words: str, hint: str) -> None:
    page.fill("#filter", words)
    page.get_by_text(f"No node matches the filter. {hint}").wait_for()


@pytest.mark.parametrize(
    ("words", "names"),
    [
        ("dedicated=ml", ["gpu-1"]),
        ("dedicated=ml:NoSchedule", ["gpu-1"]),
        ("team=ml:NoExecute", ["gpu-1"]),
        ("example.com/team=ml", ["gpu-1"]),
        ("dedicated", ["gpu-1"]),
        ("dedicated=m", []),
        ("dedicated=ml:NoExecute", []),
        ("accelerator=H100", ["gpu-1"]),
        ("accelerator=h10", []),
        ("zone=ab", ["gpu-1"]),
        ("zone=a", []),
        ("topology.kubernetes.io/zone=ab", ["gpu-1"]),
        ("zone=", []),
    ],
)
def test_labels_and_taints_match_as_a_whole(page: Page, words: str, names: list[str]) -> None:
    every = page.locator(".rows .row").count()
    page.fill("#filter", words)
    page.get_by_text(f"{len(names)} of {every} nodes match").wait_for()
    assert page.locator(".rows .row .name a").all_inner_texts() == names


def test_a_row_says_what_is_held_and_what_is_reserved(page: Page, up: Running) -> None:
    with extra_node(up, "keeps") as selector:
        for name, cpu, labels in (("kept", "2", {}), ("hold", "3", {HOLD_LABEL: "any"})):
            raw = reservation(name, cpu)
            raw["metadata"]["labels"] = labels
            raw["spec"]["template"]["spec"] |= {
                "nodeSelector": selector,
                "schedulerName": "default-scheduler",
            }
            up.client.create(RESERVATIONS, raw)
        try:
            until(page, "document.querySelector('.rows').textContent.includes('2 reserved, 3 held')")
            assert "of 8 cpu, 2 reserved, 3 held" in row(page, "keeps").text_content()
            page.evaluate("location.hash = '#/nodes/keeps'")
            pods = page.locator("#details .meter", has_text="Pods")
            pods.get_by_text("0 requested, 1 reserved, 1 held, 108 free of 110").wait_for()
            assert pods.locator(".part.held").count() == 1
        finally:
            for name in ("kept", "hold"):
                up.client.ask("DELETE", f"{RESERVATIONS}/{name}")


def test_a_device_cell_says_what_is_held_and_what_is_reserved(page: Page, up: Running) -> None:
    """Whole devices by their number, and shares of devices of a Device object."""
    with (
        extra_node(up, "shares", {"nvidia.com/gpu": "4"}) as of_shares,
        extra_node(up, "wholes", {"nvidia.com/gpu": "4"}) as of_wholes,
    ):
        up.client.create(DEVICES, device("shares", *map(gpu, range(4))))
        kept = []
        for selector, resource, each in (
            (of_shares, "koordinator.sh/gpu", 100),
            (of_wholes, "nvidia.com/gpu", 1),
        ):
            for name, number, labels in (("kept", 2, {}), ("hold", 1, {HOLD_LABEL: "any"})):
                raw = reservation(f"{name}-{each}", "1")
                raw["metadata"]["labels"] = labels
                spec = raw["spec"]["template"]["spec"]
                spec |= {"nodeSelector": selector, "schedulerName": "default-scheduler"}
                spec["containers"][0]["resources"]["requests"][resource] = str(each * number)
                up.client.create(RESERVATIONS, raw)
                kept.append(raw["metadata"]["name"])
        try:
            for name in ("shares", "wholes"):
                cell = row(page, name).locator(".cell.gpus")
                cell.get_by_text("of 4 devices, 2 reserved, 1 held").wait_for()
                assert cell.locator(".part.reserved").count() == 2
                assert cell.locator(".part.held").count() == 1
                assert cell.locator("title").all_text_contents().count("held") == 1
                page.evaluate(f"location.hash = '#/nodes/{name}'")
                panel = page.locator("#details .meter", has_text="Gpu")
                panel.get_by_text("0 requested, 2 reserved, 1 held, 1 free of 4").wait_for()
                assert panel.locator(".part.held").count() == 1
        finally:
            for name in kept:
                up.client.ask("DELETE", f"{RESERVATIONS}/{name}")
            up.client.ask("DELETE", f"{DEVICES}/shares")


def test_devices_that_a_hold_waits_for_are_marked(page: Page, up: Running) -> None:
    with extra_node(up, "busy-gpus", {"nvidia.com/gpu": "2"}) as on_it:
        busy = pod("trains", "1", schedulerName="default-scheduler", nodeSelector=on_it)
        busy["spec"]["containers"][0]["resources"] = {
            "requests": {"cpu": "1", "nvidia.com/gpu": "2"},
            "limits": {"nvidia.com/gpu": "2"},
        }
        up.client.create(PODS, busy)
        cell = row(page, "busy-gpus").locator(".cell.gpus")
        cell.get_by_text("of 2 devices, 2 in use").wait_for()
        ahead = reservation("ahead-gpu", "1", {"app": "later"}, preAllocation=True)
        ahead["metadata"]["labels"] = {HOLD_LABEL: "any"}
        spec = ahead["spec"]["template"]["spec"]
        spec |= {"nodeSelector": on_it, "schedulerName": "default-scheduler"}
        spec["containers"][0]["resources"]["requests"]["nvidia.com/gpu"] = "1"
        up.client.create(RESERVATIONS, ahead)
        try:
            cell.get_by_text("of 2 devices, 2 in use, 1 held").wait_for()
            assert cell.locator(".next.held").count() == 1
            assert cell.locator("title").all_text_contents() == ["used by pods", "used by pods, held"]
        finally:
            up.client.ask("DELETE", f"{RESERVATIONS}/ahead-gpu")
            up.client.ask("DELETE", f"{PODS}/trains?gracePeriodSeconds=0")


def test_shares_are_compared_in_both_ways(page: Page) -> None:
    every = page.locator(".rows .row").count()
    page.fill("#filter", "cpu>=0")
    page.get_by_text(f"{every} of {every} nodes match").wait_for()
    page.fill("#filter", "cpu<=100 cpu>100")
    page.get_by_text(f"0 of {every} nodes match").wait_for()


def test_a_pending_pod_is_explained_on_click(page: Page) -> None:
    page.get_by_role("link", name="Pending").click()
    row(page, "huge").click()
    assert page.url.endswith("#/pods/default/huge")
    explanation = page.locator("#explanation")
    explanation.wait_for(timeout=60_000)
    text = explanation.inner_text()
    assert "Insufficient cpu" in text
    assert "holdfast explain pod huge -n default" in text
    line = "a => getComputedStyle(a).textDecorationLine"
    assert explanation.locator("td a").first.evaluate(line) == "underline", "it stands amid text"
    page.get_by_role("button", name="Close details").click()
    until(page, "document.getElementById('details').hidden")


@pytest.mark.parametrize(
    ("target", "text"),
    [
        ("nodes/node-1", "It takes pods."),
        ("queues/team", "It admits pods."),
        ("deployments/web", "No suitable node among"),
        ("replicasets/default/no-such-one", 'replicasets.apps "no-such-one" not found'),
    ],
)
def test_other_kinds_are_explained(chrome: Browser, up: Running, target: str, text: str) -> None:
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "50"}}}
    template = {"metadata": {"labels": {"app": "large"}}, "spec": {"containers": [container]}}
    spec = {"selector": {"matchLabels": {"app": "large"}}, "template": template}
    deployments = "/apis/apps/v1/namespaces/default/deployments"
    raw = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": spec}
    up.client.create(deployments, raw)
    try:
        for page in open_page(chrome, f"{address(up)}#/{target}", fails=True):
            details = page.locator("#details")
            if target.startswith("nodes"):
                details.get_by_role("button", name="Explain").click()
            details.get_by_text(text).first.wait_for(timeout=60_000)
            if target.startswith("deployments"):
                details.get_by_role("link", name="web-").first.click()
                details.get_by_role("link", name="ReplicaSet/web-").click()
                until(page, "location.hash.startsWith('#/replicasets/default/web-')")
    finally:
        up.client.ask("DELETE", f"{deployments}/web")


def test_a_reservation_is_allocated_live(page: Page, up: Running) -> None:
    page.get_by_role("link", name="Reservations").click()
    peak = row(page, "peak")
    peak.get_by_text("4 cpu, 1Gi memory left").wait_for()
    marked = "document.querySelector('.list').dataset.mark = 'same'"
    page.evaluate(marked)
    up.client.create(PODS, pod("web-1", "3", labels={"app": "web"}, schedulerName="default-scheduler"))
    peak.get_by_text("1 cpu, 1Gi memory left").wait_for()
    peak.get_by_text("1 pod").wait_for()
    assert page.locator(".lane .stretch.allocated").count() == 1
    assert page.locator(".list[data-mark=same]").count() == 1, "the page was drawn anew"
    page.get_by_role("link", name="Events").click()
    page.get_by_text("Successfully assigned default/web-1").first.wait_for()
    up.client.ask("DELETE", f"{PODS}/web-1?gracePeriodSeconds=0")
    page.get_by_role("link", name="Reservations").click()
    peak.get_by_text("4 cpu, 1Gi memory left").wait_for()


def test_a_planned_reservation_is_drawn_from_its_start(page: Page, up: Running) -> None:
    night = reservation("night", "2")
    night["metadata"]["annotations"] = {"holdfast.io/starts-at": format_time(time.time() + 7200)}
    up.client.create(RESERVATIONS, night)
    page.get_by_role("link", name="Reservations").click()
    planned = row(page, "night")
    planned.get_by_text("Planned", exact=True).wait_for()
    planned.get_by_text("starts in").wait_for()
    page.get_by_text("1 planned").wait_for()
    stretches = planned.locator(".lane .stretch")
    assert stretches.count() == 1
    assert "planned" in (stretches.first.get_attribute("class") or "")
    assert planned.locator(".bar .reserved").count() == 0
    up.client.ask("DELETE", f"{RESERVATIONS}/night")
    planned.get_by_text("Deleted", exact=True).wait_for()


def test_free_capacity_of_all_nodes_is_the_sum_of_what_is_free_on_each(page: Page, up: Running) -> None:
    """A Waiting reservation claims more than its node has; that is not taken from other nodes."""
    with extra_node(up, "extra-1") as on_it:
        up.client.create(PODS, pod("busy", "6", schedulerName="default-scheduler", nodeSelector=on_it))
        row(page, "extra-1").get_by_text("2 free").wait_for()
        ahead = reservation("ahead", "8", {"app": "later"}, preAllocation=True)
        ahead["spec"]["template"]["spec"]["nodeSelector"] = on_it
        up.client.create(RESERVATIONS, ahead)
        row(page, "extra-1").get_by_text("175%").wait_for()
        free = page.locator(".rows .row .cell.bars:nth-child(2) .figures").all_inner_texts()
        total = sum(float(each) for text in free for each in re.findall(r"([\d.]+) free", text))
        summary = page.locator("#summary .meter").first.inner_text()
        assert f"{total:g} free of 48" in summary, free
        row(page, "extra-1").click()
        page.get_by_text("6 requested, 8 reserved, 0 free of 8").wait_for()
        up.client.ask("DELETE", f"{RESERVATIONS}/ahead")
        up.client.ask("DELETE", f"{PODS}/busy?gracePeriodSeconds=0")
        page.get_by_text("0 requested, 8 free of 8").wait_for()


def test_many_small_pods_are_drawn_as_one_part(page: Page, up: Running) -> None:
    """Lines between them would cover them."""
    with extra_node(up, "extra-2") as on_it:
        pods = [(f"small-{i}", "40m") for i in range(30)] + [("large-1", "1"), ("large-2", "1")]
        for name, cpu in pods:
            up.client.create(
                PODS, pod(name, cpu, schedulerName="default-scheduler", nodeSelector=on_it)
            )
        cell = row(page, "extra-2").locator(".cell.bars").first
        cell.get_by_text("4.8 free").wait_for()
        assert 1 <= cell.locator(".edge").count() <= 3, "of the large ones only"
        for name, _ in pods:
            up.client.ask("DELETE", f"{PODS}/{name}?gracePeriodSeconds=0")


def test_badges_of_nodes_are_seen_beside_the_panel(page: Page, up: Running) -> None:
    seen = """badge => {
      const box = badge.getBoundingClientRect();
      return document.elementFromPoint(box.x + box.width / 2, box.y + box.height / 2) === badge;
    }"""
    with extra_node(up, "extra-node-of-pool-general"):
        up.client.patch("/api/v1/nodes/extra-node-of-pool-general", {"spec": {"unschedulable": True}})
        badge = row(page, "extra-node").locator(".badge")
        badge.wait_for()
        row(page, "extra-node").click()
        page.locator("#details h2").wait_for()
        for width in (1280, 1010):
            page.set_viewport_size({"width": width, "height": 800})
            page.wait_for_timeout(100)
            assert badge.evaluate(seen), width


def test_the_panel_follows_its_pod(chrome: Browser, up: Running) -> None:
    """From pending to bound, and to deleted, also while nobody looks at the page."""
    for page in open_page(chrome, address(up), fails=True):
        follow_a_pod(page, up)


def follow_a_pod(page: Page, up: Running) -> None:
    held = [{"name": "example.com/hold"}]
    raw = pod("follow", "1", schedulerName="default-scheduler", schedulingGates=held)
    up.client.create(PODS, raw)
    page.evaluate("location.hash = '#/pods/follow'")
    details = page.locator("#details")
    details.get_by_text("Why it is gated").wait_for()
    page.locator("#explanation").wait_for(timeout=60_000)
    details.get_by_role("button", name="Explain again").wait_for()
    up.client.patch(f"{PODS}/follow", {"spec": {"schedulingGates": []}})
    details.get_by_text("bound", exact=True).first.wait_for()
    page.locator("#explanation").wait_for(state="detached")
    hide = (
        "hidden => {Object.defineProperty(document, 'hidden', {value: hidden, configurable: true});"
        " document.dispatchEvent(new Event('visibilitychange'))}"
    )
    page.evaluate(hide, True)
    up.client.ask("DELETE", f"{PODS}/follow?gracePeriodSeconds=0")
    page.wait_for_timeout(1000)
    assert details.get_by_text("bound", exact=True).first.is_visible()
    page.evaluate(hide, False)
    details.get_by_text("does not exist").wait_for()


def test_a_pod_opens_beside_the_list_it_was_opened_from(page: Page, up: Running) -> None:
    page.get_by_role("link", name="Events").click()
    page.fill("#filter", "Pod/default/huge")
    page.get_by_text(re.compile("events? match")).wait_for()
    page.get_by_role("link", name="Pod/default/huge").first.click()
    page.locator("#details").get_by_text("pod huge").first.wait_for()
    assert page.locator("nav a[aria-current=page]").inner_text().startswith("Events")
    page.get_by_role("button", name="Close details").click()
    until(page, "document.getElementById('details').hidden")
    assert page.locator("#filter").input_value() == "Pod/default/huge"
    browser = page.context.browser
    assert browser is not None
    for copied in open_page(browser, address(up) + "#/pods/default/huge?sort=-cpu"):
        copied.locator("#details").get_by_text("pod huge").first.wait_for()
        assert copied.locator("nav a[aria-current=page]").inner_text().startswith("Pending")


def test_addresses_lead_to_objects(chrome: Browser, up: Running) -> None:
    for target, text in (
        ("#/nodes/node-2", "node node-2"),
        ("#/reservations/peak", "reservation peak"),
        ("#/pods/default/huge", "pod huge"),
    ):
        for page in open_page(chrome, address(up) + target):
            page.locator("#details").get_by_text(text).first.wait_for()
    for page in open_page(chrome, address(up), fails=True):
        for target in ("nodes/no-such-node", "pods/default/no-such-pod", "reservations/none"):
            page.goto(f"{page.url.partition('#')[0]}#/{target}")
            page.locator("#details").get_by_text("does not exist").first.wait_for()
    for page in open_page(chrome, address(up) + "#/nodes?sort=-cpu&filter=node"):
        assert page.locator("[aria-sort=descending]").inner_text().startswith("CPU")
        assert page.locator("#filter").input_value() == "node"


def test_with_the_keyboard_only(page: Page) -> None:
    page.keyboard.press("3")
    until(page, "location.hash.startsWith('#/pending')")
    page.keyboard.press("1")
    until(page, "location.hash.startsWith('#/nodes')")
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.id") == "filter"
    page.keyboard.type("node")
    until(page, "document.querySelectorAll('.rows .row').length === 3")
    page.keyboard.press("ArrowDown")
    assert "node-1" in page.evaluate("document.activeElement.textContent")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    until(page, "location.hash.startsWith('#/nodes/node-3')")
    until(page, "document.activeElement.tagName === 'H2'")
    page.keyboard.press("Escape")
    until(page, "document.getElementById('details').hidden")
    until(page, "document.activeElement.textContent.includes('node-3')")
    page.keyboard.press("Escape")
    until(page, "!location.hash.includes('filter')")
    page.keyboard.press("/")
    page.keyboard.type("gpu")
    until(page, "location.hash.includes('filter=gpu')")
    page.keyboard.press("Escape")
    until(page, "!location.hash.includes('filter')")
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.id") == "filter"
    assert page.input_value("#filter") == "", "the slash is a shortcut again"
    page.keyboard.press("Escape")
    page.keyboard.press("?")
    assert page.locator("dialog").is_visible()
    page.keyboard.press("Escape")
    assert page.locator("dialog").is_hidden()


def test_every_control_is_reached_with_tab(page: Page) -> None:
    reached = set()
    for _ in range(30):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("document.activeElement.textContent || document.activeElement.id"))
    text = " ".join(reached)
    for control in ("Theme", "Keyboard", "Nodes", "Pending", "Events", "filter", "CPU", "node-1"):
        assert control in text, control


def test_dark_and_light(chrome: Browser, up: Running) -> None:
    background = "getComputedStyle(document.body).backgroundColor"
    for page in open_page(chrome, address(up), color_scheme="dark"):
        dark = page.evaluate(background)
        page.get_by_role("button", name="Theme: system").click()
        assert page.evaluate(background) == dark
        page.get_by_role("button", name="Theme: dark").click()
        assert page.evaluate(background) != dark
        page.reload()
        page.wait_for_selector("html[data-ready]")
        assert page.evaluate(background) != dark, "the choice is kept"


def test_nothing_runs_out_of_a_narrow_window(page: Page) -> None:
    outside = """[...document.querySelectorAll("html, .list-box, .scroll, .summary, .tools")]
      .filter(each => each.scrollWidth > each.clientWidth + 1).map(each => each.className)"""
    for width in (900, 700, 400, 320):
        page.set_viewport_size({"width": width, "height": 700})
        for view in ("nodes", "reservations", "pending", "queues", "events"):
            page.evaluate(f"location.hash = '#/{view}'")
            page.wait_for_timeout(100)
            assert page.evaluate(outside) == [], (view, width)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_violation(chrome: Browser, up: Running, scheme: str) -> None:
    for page in open_page(chrome, address(up), color_scheme=scheme, bypass_csp=True):
        explained = ("pods/default/huge", "queues/team")
        for target in ("nodes/gpu-1", "reservations/peak", *explained, "queues", "events"):
            page.goto(f"{page.url.partition('#')[0]}#/{target}")
            if "/" in target:
                page.locator("#details h3, #details dl").first.wait_for()
            if target in explained:
                page.locator("#explanation").wait_for(timeout=60_000)
            assert violations(page) == [], target
        page.keyboard.press("?")
        assert violations(page) == [], "dialog"
        page.set_viewport_size({"width": 400, "height": 800})
        page.keyboard.press("Escape")
        for target in ("nodes", "reservations", "pending", "queues", "events", "nodes/gpu-1"):
            page.goto(f"{page.url.partition('#')[0]}#/{target}")
            page.wait_for_timeout(100)
            assert violations(page) == [], f"narrow: {target}"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_violation_where_the_token_is_asked_for(
    chrome: Browser, up: Running, scheme: Literal["dark", "light"]
) -> None:
    context = chrome.new_context(color_scheme=scheme, bypass_csp=True)
    page = context.new_page()
    page.goto(address(up).partition("?")[0])
    assert violations(page) == []
    page.fill("#token", "wrong")
    page.keyboard.press("Enter")
    page.get_by_text("The token is wrong").wait_for()
    assert violations(page) == []
    context.close()


def test_5000_nodes_and_50000_pods(chrome: Browser) -> None:
    with large_dashboard(large_scheduler(pending=PENDING)) as served:
        for page in open_page(chrome, served.address):
            marks = "performance.getEntriesByType('mark').map(each => [each.name, each.startTime])"
            times = dict(page.evaluate(marks))
            painted = times["holdfast-painted"] - times["holdfast-data"]
            assert painted < 2000, f"first paint {painted:.0f} ms after the data arrived"
            assert page.locator("[role=grid]").get_attribute("aria-rowcount") == str(NODES + 1)
            assert page.locator(".rows .row").count() < 60, "only visible rows exist"
            assert page.locator("canvas.strip").is_visible()
            page.locator(".rows .row").first.focus()
            page.keyboard.press("End")
            assert "node-4999" in page.evaluate("document.activeElement.textContent")
            page.keyboard.press("Home")
            figures = row(page, "node-1").locator(".figures").first
            before = figures.inner_text()
            page.evaluate("document.querySelector('.list').dataset.mark = 'same'")
            served.do(lambda: served.resize_node(1))
            until(page, f"!document.querySelector('.list').textContent.includes({before!r})")
            assert page.locator(".list[data-mark=same]").count() == 1, "the page was drawn anew"
            heap = page.evaluate("performance.memory.usedJSHeapSize") / 1024**2
            assert heap < 100, f"{heap:.0f} MiB"
            page.fill("#filter", "zone=zone-1 is:cordoned")
            until(page, "document.querySelectorAll('.rows .row').length < 30")
            page.keyboard.press("Escape")
            page.evaluate("location.hash = '#/nodes/node-2500'")
            until(page, "document.querySelector('.row.chosen')?.textContent.includes('node-2500')")
            page.get_by_role("link", name="Pending").click()
            page.get_by_text("2,000 waiting for a node").wait_for()
            until(page, "/^[0-9]+[+] /.test(document.querySelector('.chip').textContent)")
        assert served.longest < 0.25, f"the event loop computed for {served.longest:.2f} s"


def test_it_reconnects(chrome: Browser, tmp_path: Path) -> None:
    with Running(tmp_path, "--nodes", "1", "--dashboard-port", "0") as first:
        for page in open_page(chrome, address(first), fails=True):
            first.stop()
            page.get_by_text("reconnecting").wait_for()
            page.evaluate("location.hash = '#/nodes/node-1'")
            page.get_by_text("The server cannot be reached").wait_for()
