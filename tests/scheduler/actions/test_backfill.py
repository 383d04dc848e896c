"""Held room used meanwhile by what ends in time."""

import pytest

from harness.device_objects import device, gpu
from harness.objects import Raw, gang, in_queue, node, pod, pod_group, queue
from harness.scenarios import Played, actions, play, step

AFTER = {"starvingJobTimeThreshold": 10, "backfill": True}
ESTIMATE = "holdfast.io/run-estimate"
START = "holdfast.io/expected-start"


def busy(name: str, *ends: int, says: bool = True) -> list[Raw]:
    """A node with a core for each of these pods, which run, and say so, until then."""
    pods = []
    for i, end in enumerate(ends):
        said = {ESTIMATE: f"{end}s"} if says else {}
        pods.append(pod(f"{name}-{i}", 1, nodeName=name, runs_for=f"{end}s", annotations=said))
    return [node(name, len(ends)), *pods]


def estimated(name: str, seconds: int, at: str, cpu: int = 1, **more: str) -> Raw:
    runs = more.pop("runs_for", f"{seconds}s")
    return pod(name, cpu, annotations={ESTIMATE: f"{seconds}s"}, at=at, runs_for=runs)


@pytest.mark.parametrize("hold", ["node", "amount"])
@pytest.mark.parametrize(
    ("seconds", "starts"),
    [(30, 30), (60, 30), (61, None), (0, 30)],  # one core is free from 30s on, all of them at 90s
)
def test_what_ends_before_the_expected_start_is_let_in(
    hold: str, seconds: int, starts: float | None
) -> None:
    given = [*busy("n1", 30, 90), pod("big", 2), estimated("small", seconds, "20s")]
    played = play(given, config=actions(**AFTER, hold=hold), until=91)
    assert played.times("small") == [starts]
    assert played.times("big") == [90]


@pytest.mark.parametrize(
    "small",
    [
        pod("small", 1, at="20s"),  # does not say how long
        pod("small", 1, at="20s", annotations={ESTIMATE: "soon"}),
        pod("small", 2, at="20s", annotations={ESTIMATE: "5s"}),  # does not fit
    ],
)
def test_what_does_not_say_or_does_not_fit_is_not(small: Raw) -> None:
    played = play(busy("n1", 30, 90), pod("big", 2), small, config=actions(**AFTER), until=60)
    assert played.times("small") == [None]


def test_a_deadline_is_an_estimate() -> None:
    small = pod("small", 1, at="20s", activeDeadlineSeconds=40)
    played = play(busy("n1", 30, 90), pod("big", 2), small, config=actions(**AFTER), until=60)
    assert played.times("small") == [30]


def test_so_is_what_a_volcano_job_says() -> None:
    job = {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": "j"},
        "spec": {"runningEstimate": "40s"},
    }
    small = pod("small", 1, at="20s", annotations={"volcano.sh/job-name": "j"})
    played = play(job, busy("n1", 30, 90), pod("big", 2), small, config=actions(**AFTER), until=60)
    assert played.times("small") == [30]


def test_without_estimates_of_what_runs_nothing_is_let_in() -> None:
    given = [*busy("n1", 30, 90, says=False), pod("big", 2), estimated("small", 5, "20s")]
    assert play(given, config=actions(**AFTER), until=60).times("small") == [None]


def test_only_if_it_is_switched_on() -> None:
    given = [*busy("n1", 30, 90), pod("big", 2), estimated("small", 5, "20s")]
    config = actions(starvingJobTimeThreshold=10)
    assert play(given, config=config, until=60).times("small") == [None]


def test_the_expected_start_is_shown_on_the_hold() -> None:
    played = play(busy("n1", 30, 90), pod("big", 2), config=actions(**AFTER), until=15)
    [hold] = played.all("Reservation")
    assert hold["metadata"]["annotations"][START] == "2026-01-01T00:01:30Z"
    unknown = play(busy("n1", 30, 90, says=False), pod("big", 2), config=actions(**AFTER), until=15)
    [hold] = unknown.all("Reservation")
    assert START not in hold["metadata"]["annotations"]


def expected(played: Played) -> str:
    [hold] = [each for each in played.all("Reservation") if each["metadata"]["name"][:5] == "held-"]
    return str(hold["metadata"]["annotations"].get(START, ""))


def on_gpus(name: str, *ends: int) -> list[Raw]:
    """Pods that have all GPUs of a node, whole ones; 0 means that it is not known when they end."""
    pods = []
    for i, end in enumerate(ends):
        said: Raw = {"runs_for": f"{end}s", "annotations": {ESTIMATE: f"{end}s"}} if end else {}
        pods.append(pod(f"{name}-{i}", requests={"nvidia.com/gpu": "1"}, **said))
    return [node(name), device(name, *(gpu(i) for i in range(len(ends)))), *pods]


def half_gpu(**more: str) -> Raw:
    return pod("p", requests={"koordinator.sh/gpu": "50", **more}, at="1s")


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize(
    ("ends", "start"),
    [((0,), None), ((90,), 90), ((0, 0), None), ((0, 60), 60), ((90, 60), 60)],
)
def test_devices_of_another_name_are_expected_too(
    ends: tuple[int, ...], start: int | None, restarts: bool
) -> None:
    again = [step("30s", restart="scheduler")] if restarts else []
    given = [*on_gpus("n1", *ends), half_gpu(), *again]
    said = f"2026-01-01T00:0{start // 60}:{start % 60:02d}Z" if start else ""
    assert expected(play(given, config=actions(**AFTER), until=45)) == said
    assert play(given, config=actions(**AFTER), until=100).times("p") == [start]


@pytest.mark.parametrize(("end", "said"), [(30, "2026-01-01T00:01:30Z"), (0, "")])
def test_all_that_a_hold_waits_for_counts(end: int, said: str) -> None:
    """The cores are free at 90s, the GPU before or not."""
    given = [*on_gpus("n1", end), estimated("cores", 90, "0s", cpu=16), half_gpu(cpu="1")]
    assert expected(play(given, config=actions(**AFTER), until=15)) == said


def test_the_younger_of_two_holds_waits_for_the_older() -> None:
    """Two pods want a whole GPU each; there is one, by another name, until 60s."""
    whole = {"koordinator.sh/gpu": "100"}
    given = [*on_gpus("n1", 60), *(pod(f"p{i}", requests=whole, at="1s") for i in (1, 2))]
    config = actions(**AFTER, reservedNodePercent=100, hold="amount")
    played = play(given, config=config, until=30)
    said = {raw["metadata"]["name"][9:11]: raw for raw in played.all("Reservation")}
    assert {name: raw["metadata"]["annotations"].get(START, "") for name, raw in said.items()} == {
        "p1": "2026-01-01T00:01:00Z"
    }


def test_what_others_say_on_a_hold_stays() -> None:
    given = [*busy("n1", 30, 90), pod("big", 2), estimated("small", 30, "20s", runs_for="40s")]
    [made] = play(given, config=actions(**AFTER), until=15).all("Reservation")
    note = {"metadata": {"annotations": {"note": ""}}}
    name = made["metadata"]["name"]
    written = step("16s", patch={"kind": "Reservation", "name": name, "merge": note})
    [hold] = play(given, written, config=actions(**AFTER), until=75).all("Reservation")
    annotations = hold["metadata"]["annotations"]
    assert START in annotations
    assert annotations["note"] == ""


def test_the_capacity_of_a_gang_is_lent_until_all_of_it_is_free() -> None:
    """n1 is free at 30s, n2 at 90s: until then n1 is of use to others."""
    given = [*busy("n1", 30), *busy("n2", 90), pod_group("g", 2), *gang("g", 2)]
    smalls = [estimated("a", 20, "20s"), estimated("b", 30, "21s"), estimated("c", 20, "22s")]
    config = actions(**AFTER, reservedNodePercent=100)
    played = play(given, smalls, config=config, until=91)
    assert played.times("a", "b", "c") == [30, 50, None]  # c would end after 90s
    assert played.times("g-0", "g-1") == [90, 90]


def test_a_gang_starts_no_later_than_expected_whatever_is_lent() -> None:
    """n1 is free at 30s and n2 expected at 90s; that n3, where nothing is held, is free at 60s is luck,
    which those who were let in until 80s may spoil. What was said is kept."""
    given = [*busy("n1", 30), *busy("n2", 90), *busy("n3", 60), pod_group("g", 2), *gang("g", 2)]
    smalls = [estimated("fits", 50, "20s")]
    config = actions(starvingJobTimeThreshold=10, reservedNodePercent=60, backfill=True)
    played = play(given, smalls, config=config, until=200)
    assert played.times("fits") == [30]
    assert played.times("g-0", "g-1") == [80, 80]


def test_where_one_pod_waits_other_nodes_do_not_matter() -> None:
    """It goes to n2 at 60s, whoever is on n1."""
    given = [*busy("n1", 30, 90), *busy("n2", 60, 60), pod("big", 2), estimated("small", 55, "20s")]
    played = play(given, config=actions(**AFTER, reservedNodePercent=50), until=200)
    assert played.bound()["small"] == (30, "n1")
    assert played.bound()["big"] == (60, "n2")


def test_a_gang_is_let_in_whole() -> None:
    given = [*busy("n1", 30, 30, 90), pod("big", 3), pod_group("g", 2)]
    said = {ESTIMATE: "20s"}
    members = gang("g", 2, at="20s", annotations=said, runs_for="20s")
    played = play(given, members, config=actions(**AFTER), until=91)
    assert played.times("g-0", "g-1") == [30, 30]
    assert played.times("big") == [90]


def test_a_member_that_does_not_fit_with_the_others_is_tried_again_when_it_fits() -> None:
    given = [*busy("n1", 30, 30, 60, 90), pod("big", 4), pod_group("g", 2)]
    members = gang("g", 3, at="20s", annotations={ESTIMATE: "60s"}, runs_for="60s")
    members[2]["metadata"]["annotations"] |= {ESTIMATE: "25s", "sim.holdfast.io/runs-for": "25s"}
    played = play(given, members, config=actions(**AFTER), until=91)
    assert played.times("g-0", "g-1", "g-2") == [30, 30, 60]
    assert played.times("big") == [90]


def test_a_job_that_does_not_fit_holds_up_no_smaller_one() -> None:
    said = {ESTIMATE: "50s"}
    large = [pod_group("g", 2), *gang("g", 2, at="20s", annotations=said)]
    small = pod("small", 1, at="25s", annotations=said)
    played = play(busy("n1", 30, 90), pod("big", 2), large, small, config=actions(**AFTER), until=60)
    assert played.times("g-0", "g-1", "small") == [None, None, 30]


@pytest.mark.parametrize(
    ("of", "starts"),
    [
        pytest.param(queue("q", state="Closed"), [None, None], id="closed"),
        pytest.param(queue("q", capability={"cpu": "1"}), [30, None], id="full"),
    ],
)
@pytest.mark.parametrize("together", [False, True])
def test_queues_have_their_say(of: Raw, starts: list[float | None], together: bool) -> None:
    said = {ESTIMATE: "50s", **in_queue("q")}
    job = pod_group("small", 1, queue="q")
    smalls = gang("small", 2, at="20s", annotations=said)
    if not together:
        smalls = [pod(f"small-{i}", 1, at="20s", annotations=said) for i in range(2)]
    played = play(
        of, busy("n1", 30, 30, 90), pod("big", 3), job, smalls, config=actions(**AFTER), until=60
    )
    assert played.times("small-0", "small-1") == starts


def test_who_runs_longer_than_he_said_is_not_believed_again() -> None:
    """While it is not known when it will end, no one is let in; later, others are."""
    owner = {"kind": "Job", "apiVersion": "batch/v1", "name": "j", "uid": "j", "controller": True}

    def small(name: str, at: str, runs_for: str, owners: list[Raw]) -> Raw:
        made = pod(name, 1, at=at, runs_for=runs_for, annotations={ESTIMATE: "5s"})
        made["metadata"]["ownerReferences"] = owners
        return made

    given = [
        *busy("n1", 30, 30, 300),
        pod("big", 3),
        small("late", "20s", "60s", [owner]),
        small("meanwhile", "50s", "5s", []),
        small("again", "100s", "5s", [owner]),
        small("other", "100s", "5s", []),
    ]
    played = play(given, config=actions(**AFTER), until=120)
    assert played.times("late", "meanwhile", "again", "other") == [30, 90, None, 100]
    assert "Overrun" in played.reasons("late")


@pytest.mark.parametrize("restart", [40, 95])  # while it runs, and after it has ended
def test_an_overrun_survives_a_restart(restart: int) -> None:
    owner = {"kind": "Job", "apiVersion": "batch/v1", "name": "j", "uid": "j", "controller": True}

    def small(name: str, at: str, runs_for: str, owners: list[Raw]) -> Raw:
        made = pod(name, 1, at=at, runs_for=runs_for, annotations={ESTIMATE: "5s"})
        made["metadata"]["ownerReferences"] = owners
        return made

    given = [
        *busy("n1", 30, 30, 300),
        pod("big", 3),
        small("late", "20s", "60s", [owner]),
        small("again", "100s", "5s", [owner]),
        small("other", "100s", "5s", []),
        step(f"{restart}s", restart="scheduler"),
    ]
    played = play(given, config=actions(**AFTER), until=120)
    assert played.times("late", "again", "other") == [30, None, 100]
    assert played.reasons("late").count("Overrun") == 1
    assert played.find("Pod", "late")["metadata"]["annotations"]["holdfast.io/overran"]


def overrunning(name: str, at: int, says: int, runs: int) -> Raw:
    """A pod of a Job of the CronJob `etl`, on a node of its own."""
    made = pod(name, 1, at=f"{at}s", runs_for=f"{runs}s", annotations={ESTIMATE: f"{says}s"})
    owner = {"kind": "Job", "apiVersion": "batch/v1", "uid": name, "controller": True}
    made["metadata"]["ownerReferences"] = [{**owner, "name": f"etl-{29384950 + at}"}]
    return made


@pytest.mark.parametrize(
    ("runs", "learns", "starts"),
    [
        ((40, 40, 40), True, None),  # 40 s are more than are left until 290 s
        ((40, 40, 40), False, 260),
        ((40, 5, 5), True, 260),  # most keep to what they say
        ((40, 40), True, 260),  # too few to tell
        ((25, 22, 28), True, 260),  # longer than they say, and short enough
    ],
)
@pytest.mark.parametrize("restarts", [False, True])
def test_jobs_that_overrun_often_are_planned_with_their_real_length(
    runs: tuple[int, ...], learns: bool, starts: float | None, restarts: bool
) -> None:
    earlier = [overrunning(f"e{i}", 50 * i, 10, seconds) for i, seconds in enumerate(runs)]
    given = [
        *busy("n1", 250, 290),
        node("n2", 1, labels={"only": "earlier"}),
        *earlier,
        pod("big", 2, at="150s"),
        overrunning("new", 260, 10, 10),
    ]
    for each in earlier:
        each["spec"]["nodeSelector"] = {"only": "earlier"}
    given[-1]["spec"]["nodeSelector"] = {"kubernetes.io/hostname": "n1"}
    config = actions(**AFTER)
    config["actions"][1] = {"name": "backfill", "arguments": {"learnRunTimes": learns}}
    steps = [step("240s", restart="scheduler")] if restarts else []
    played = play(given, steps, config=config, until=295)
    assert played.times("new") == [starts]
    assert played.times("big") == [290]


def test_a_restart_in_between_changes_nothing() -> None:
    given = [*busy("n1", 30, 90), pod("big", 2), estimated("small", 50, "20s")]
    restarts = [step(f"{t}s", restart="scheduler") for t in (15, 25, 35)]
    played = play(given, restarts, config=actions(**AFTER), until=95)
    assert played.times("small", "big") == [30, 90]


@pytest.mark.parametrize(
    ("policy", "starts"),
    [
        # Both nodes have a core free from 30 s on, and two from 90 s on.
        (False, {"big-0": 90, "big-1": 90, "short": 90, "long": 90}),
        (True, {"big-0": 90, "big-1": 90, "short": 40, "long": 290}),
        ("conservative", {"big-0": 90, "big-1": 90, "short": 40, "long": 290}),
        ("easy", {"big-0": 90, "big-1": 140, "short": 40, "long": 40}),
    ],
)
def test_easy_backfill_protects_the_first_starving_job_only(
    policy: object, starts: dict[str, float]
) -> None:
    given = [
        *busy("n1", 30, 90),
        *busy("n2", 30, 90),
        pod("big-0", 2, runs_for="200s", annotations={ESTIMATE: "200s"}),
        pod("big-1", 2, at="1s", runs_for="200s", annotations={ESTIMATE: "200s"}),
        estimated("long", 100, "40s"),
        estimated("short", 50, "40s"),
    ]
    config = actions(starvingJobTimeThreshold=10, reservedNodePercent=100, backfill=policy)
    played = play(given, config=config, until=700)
    found = played.times("big-0", "big-1")
    assert found == [starts["big-0"], starts["big-1"]]
    if policy:
        assert played.times("short", "long") == [starts["short"], starts["long"]]
    else:
        assert all(at is None or at >= 90 for at in played.times("short", "long"))


# What pods are told that another action places

FAILED = "FailedScheduling"


def told(played: Played, name: str) -> tuple[list[str], list[float]]:
    """The reasons of a pod's events, and when the timeline has it as unschedulable."""
    found = [reason for reason in played.reasons(name) if reason in ("Scheduled", FAILED)]
    return found, [t for t, _ in played.events(f"Pod/default/{name}", "Unschedulable")]


@pytest.mark.parametrize("policy", ["node", "amount"])
def test_a_pod_that_is_backfilled_in_the_round_is_not_reported_as_unschedulable(policy: str) -> None:
    given = [*busy("n1", 30, 90), pod("big", 2), estimated("small", 30, "40s")]
    given += [estimated("long", 60, "40s")]
    played = play(given, config=actions(**AFTER, hold=policy), until=80)
    assert played.times("small", "long") == [40, None]
    assert told(played, "small") == (["Scheduled"], [])
    assert told(played, "long") == ([FAILED], [40])
    assert played.message("long").startswith("0/1 nodes are available")


def test_members_that_are_backfilled_are_not_reported_as_unschedulable() -> None:
    given = [*busy("n1", 30, 30, 90), pod("big", 3), pod_group("g", 2)]
    members = gang("g", 2, at="40s", annotations={ESTIMATE: "20s"}, runs_for="20s")
    played = play(given, members, config=actions(**AFTER), until=60)
    assert [told(played, name) for name in ("g-0", "g-1")] == [(["Scheduled"], [])] * 2


def test_a_pod_that_waited_before_it_was_backfilled_keeps_its_earlier_report() -> None:
    given = [*busy("n1", 30, 90), pod("big", 2), estimated("small", 30, "20s")]
    played = play(given, config=actions(**AFTER), until=60)
    assert played.times("small") == [30]
    assert told(played, "small") == ([FAILED, "Scheduled"], [20])
