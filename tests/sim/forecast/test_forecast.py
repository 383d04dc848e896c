"""Forecasts of starts: by which end, in what range, and when they are not known."""

import math
from typing import Any

import pytest

from harness.objects import GROUP, pod_group, queue
from holdfast.api.names import NO_PROVISIONER
from holdfast.scheduler.scheduler import Scheduler
from holdfast.sim.forecast.answers import StartAnswer, StartStatus
from holdfast.sim.forecast.run_times import DurationHistory
from holdfast.sim.forecast.targets import NoSuchTarget, find_targets
from sim.forecast.cluster_dump import ESTIMATE, NOON, answer, asked, ended, node, owned, pod, running

Raw = dict[str, Any]


def wait(found: StartAnswer) -> float:
    assert found.status is StartStatus.EXPECTED, found
    assert found.wait is not None and isinstance(found.wait.expected, float)
    assert found.wait.earliest == found.wait.expected == found.wait.latest
    return found.wait.expected


def without_requests(raw: Raw) -> Raw:
    """If it requests no cpu."""
    for container in raw["spec"]["containers"]:
        if container["resources"]["requests"] == {"cpu": "0"}:
            del container["resources"]
    return raw


def test_a_pod_starts_when_the_pod_in_its_place_is_expected_to_end() -> None:
    objects = [node(), running(pod("a", annotations={ESTIMATE: "30m"})), pod("b")]
    found = answer(objects, "b")
    assert wait(found) == 20 * 60
    assert found.node == "n1"
    assert found.start is not None and found.start.expected == "2026-01-01T12:20:00Z"
    (release,) = found.waits_for
    assert release.object == "Pod/default/a" and release.estimate is not None
    assert release.estimate.source == ESTIMATE


def test_a_pod_with_a_free_node_starts_now() -> None:
    assert wait(answer([node(), pod("b")], "b")) == 0


def test_pods_start_in_the_order_of_the_queue() -> None:
    stated = {ESTIMATE: "10m"}
    objects = [
        node(),
        running(pod("a", annotations={ESTIMATE: "20m"})),
        pod("low", annotations=stated),
        pod("high", annotations=stated, priority=10, preemptionPolicy="Never"),
    ]
    starts = {each.object: each for each in asked(objects).starts}
    assert wait(starts["Pod/default/high"]) == 600
    assert wait(starts["Pod/default/low"]) == 1200
    assert starts["Pod/default/low"].pods_before == 1


def test_an_unknown_end_is_an_unknown_start_and_the_pod_is_named() -> None:
    found = answer([node(), running(pod("a")), pod("b")], "b")
    assert found.status is StartStatus.UNKNOWN
    assert [each.object for each in found.needs] == ["Pod/default/a"]
    assert ESTIMATE in found.needs[0].remedy


@pytest.mark.parametrize(
    ("cpus", "needs"),
    [
        ([0, 1], ["w1"]),
        ([1, 0, 0, 0], ["w0"]),
        ([0, 0], []),
        ([1, 1, 1], ["w0", "w1", "w2"]),
    ],
    ids=["one of two", "one of four", "none of two", "all"],
)
def test_of_the_pods_without_an_end_those_are_named_that_it_waits_for(
    cpus: list[int], needs: list[str]
) -> None:
    """A pod that requests nothing frees nothing that is missing."""
    others = [running(without_requests(pod(f"w{at}", cpu)), at="n1") for at, cpu in enumerate(cpus)]
    found = answer([node(), *others, pod("b", 4)], "b")
    assert [each.object for each in found.needs] == [f"Pod/default/{name}" for name in needs]


def test_as_many_ends_are_named_as_are_enough() -> None:
    """Of two pods, the end of either."""
    others = [running(pod("w0", 1)), running(pod("w1", 1)), running(pod("w2", 2))]
    found = answer([node(), *others, pod("b", 2)], "b")
    assert [each.object for each in found.needs] in (
        [["Pod/default/w2"], ["Pod/default/w0", "Pod/default/w1"]]
    )


def test_a_pod_that_is_required_by_affinity_is_not_waited_for() -> None:
    """Without the pod that it must be beside, it would start nowhere."""
    term = {"topologyKey": "host", "labelSelector": {"matchLabels": {"app": "cache"}}}
    affinity = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    cache = running(pod("cache", 1))
    cache["metadata"]["labels"] = {"app": "cache"}
    nodes = [node("n1"), node("n2")]
    for each in nodes:
        each["metadata"]["labels"] = {"host": each["metadata"]["name"]}
    found = answer([*nodes, cache, running(pod("big", 3)), pod("b", 2, affinity=affinity)], "b")
    assert found.status is StartStatus.UNKNOWN
    assert [each.object for each in found.needs] == ["Pod/default/big"]


def test_a_schedule_without_a_start_is_never_due() -> None:
    schedule = every_minute(4)
    schedule["spec"]["schedule"] = "0 18 31 2 *"
    for name in (None, "minutely"):
        (found,) = asked([node(), schedule], "reservationschedule", name).starts
        assert found.status is StartStatus.NEVER
        assert found.message == "'0 18 31 2 *' has no start within 5 years"


def test_a_pod_with_a_known_end_is_waited_for_rather_than_one_without() -> None:
    objects = [
        node("n1"),
        node("n2"),
        running(pod("endless")),
        running(pod("a", annotations={ESTIMATE: "1h"}), at="n2"),
        pod("b"),
    ]
    found = asked(objects, name="b")
    assert wait(found.starts[0]) == 50 * 60 and found.starts[0].node == "n2"
    assert any("no known end" in note for note in found.notes)


def test_a_pod_that_fits_no_node_never_starts() -> None:
    found = answer([node(), pod("huge", cpu=30)], "huge")
    assert found.status is StartStatus.NEVER
    assert "Insufficient cpu" in found.message


def test_pods_of_services_do_not_make_room() -> None:
    service = owned(running(pod("web-1")), "ReplicaSet", "web")
    found = answer([node(), service, pod("b")], "b")
    assert found.status is StartStatus.NEVER


def test_a_gated_pod_waits_for_its_gates() -> None:
    found = answer([node(), pod("b", schedulingGates=[{"name": "example.com/quota"}])], "b")
    assert found.status is StartStatus.NEVER
    assert found.until == "example.com/quota is removed"


def test_a_missing_claim_is_unknown() -> None:
    volume = {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}
    found = answer([node(), pod("b", volumes=[volume])], "b")
    assert found.status is StartStatus.UNKNOWN
    assert 'persistentvolumeclaim "data" not found' in found.message


def test_the_pod_of_another_scheduler_is_unknown() -> None:
    found = answer([node(), pod("b", schedulerName="volcano")], "b")
    assert found.status is StartStatus.UNKNOWN and "volcano" in found.message


def test_what_has_started_or_ended_says_so() -> None:
    objects = [
        node(),
        running(pod("a")),
        ended(pod("done"), "2026-01-01T10:00:00Z", "2026-01-01T11:00:00Z"),
    ]
    assert answer(objects, "a").status is StartStatus.STARTED
    assert answer(objects, "done").status is StartStatus.OVER
    assert asked(objects).starts == []


def test_started_pods_of_a_workload_are_told_apart_by_their_starts() -> None:
    since = {"web-0": "11:00:00", "web-1": "11:00:05", "web-2": "11:00:00"}
    objects = [
        node("n1", 12),
        {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "web"}},
        *(
            owned(running(pod(name), since=f"2026-01-01T{at}Z"), "ReplicaSet", "web")
            for name, at in since.items()
        ),
    ]
    report = asked(objects, "replicaset", "web")
    assert [(each.status, each.pods, each.node) for each in report.starts] == [
        ("Started", ["web-0", "web-2"], "n1"),
        ("Started", ["web-1"], "n1"),
    ]
    starts = [each.start.expected for each in report.starts if each.start is not None]
    assert starts == ["2026-01-01T11:00:00Z", "2026-01-01T11:00:05Z"]


@pytest.mark.parametrize(
    ("asked_for", "is_noted"),
    [
        pytest.param(pod("b", nodeSelector={"disk": "ssd"}), False, id="no-node-matches"),
        pytest.param(pod("b", cpu=9), False, id="larger-than-any-node"),
        pytest.param(pod("b", cpu=1), False, id="starts-now"),
        pytest.param(pod("b", schedulerName="other"), False, id="another-scheduler"),
        pytest.param(pod("b", cpu=2), True, id="in-its-place"),
    ],
)
def test_unknown_ends_are_noted_where_they_can_bring_a_start(asked_for: Raw, is_noted: bool) -> None:
    report = asked([node(), running(pod("endless")), asked_for], name="b")
    assert any("no known end" in note for note in report.notes) == is_noted


def test_what_is_not_there_is_an_error() -> None:
    with pytest.raises(NoSuchTarget, match='no pod "x"'):
        asked([node()], name="x")


def test_a_start_beyond_the_horizon_is_later() -> None:
    objects = [node(), running(pod("a", annotations={ESTIMATE: "30m"})), pod("b")]
    assert answer(objects, "b", within=600.0).status is StartStatus.LATER


def every_minute(cpu: int) -> Raw:
    spec = reservation("unused", cpu)["spec"]
    template = {key: value for key, value in spec.items() if key != "ttl"}
    return {
        "apiVersion": "scheduling.holdfast.io/v1alpha1",
        "kind": "ReservationSchedule",
        "metadata": {"name": "minutely", "uid": "minutely"},
        "spec": {"schedule": "* * * * *", "duration": "30s", "template": {"spec": template}},
    }


def test_a_schedule_that_recurs_every_minute_ends_the_forecast_early() -> None:
    objects = [node(), running(pod("a", annotations={ESTIMATE: "15m"})), every_minute(4), pod("b")]
    found = answer(objects, "b", occurrences=20)
    assert found.status is StartStatus.UNKNOWN
    assert "after 20 reservations of ReservationSchedules" in found.until
    assert "here at 2026-01-01T12:20:" in found.until
    found = answer(objects, "b", occurrences=math.inf, within=1800.0)
    assert found.status is StartStatus.NEVER, "all of the half hour is played"


def cron_job(schedule: str = "* * * * *", **job: Any) -> Raw:
    containers = [{"name": "c", "image": "x", "resources": {"requests": {"cpu": "1m"}}}]
    template = {"spec": {"containers": containers, "restartPolicy": "Never"}}
    return {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": {"name": "cj", "namespace": "default", "uid": "cj"},
        "spec": {"schedule": schedule, "jobTemplate": {"spec": {"template": template, **job}}},
    }


def test_a_cron_job_ends_the_forecast_early() -> None:
    objects = [
        node(cpu=3),
        running(pod("a", cpu=1, annotations={ESTIMATE: "5h"})),
        cron_job(),
        pod("b"),
    ]
    found = answer(objects, "b", occurrences=15)
    assert found.status is StartStatus.UNKNOWN
    assert "ReservationSchedules and pods of CronJobs, here at 2026-01-01T12:16:00Z" in found.until
    found = answer(objects, "b", occurrences=math.inf, within=900.0)
    assert found.status is StartStatus.LATER, "all of the quarter of an hour is played"


def test_a_job_of_a_cron_job_counts_as_many_as_pods_run_at_a_time() -> None:
    objects = [node(cpu=3), running(pod("a", cpu=1, annotations={ESTIMATE: "5h"})), pod("b")]
    found = answer([*objects, cron_job(parallelism=5)], "b", occurrences=15)
    assert "here at 2026-01-01T12:04:00Z" in found.until


def test_pods_that_cron_jobs_create_later_are_neither_pending_now_nor_named_without_end() -> None:
    objects = [node(), running(pod("a", annotations={ESTIMATE: "20m"})), cron_job(), pod("b")]
    report = asked(objects, name="b")
    (found,) = report.starts
    assert wait(found) == 600
    assert found.pods_before == 0
    assert not [note for note in report.notes if "no known end" in note]


def test_all_pods_of_a_job_of_a_cron_job_count() -> None:
    """Also those that are created once others have ended."""
    objects = [node(cpu=3), running(pod("a", cpu=1, annotations={ESTIMATE: "5h"})), pod("b")]
    stated = cron_job("0 * * * *", completions=100)
    template = stated["spec"]["jobTemplate"]["spec"]["template"]
    template["metadata"] = {"annotations": {ESTIMATE: "1s"}}
    found = answer([*objects, stated], "b", occurrences=15)
    assert "here at 2026-01-01T13:00:" in found.until


def test_later_pods_of_a_cron_job_do_not_fill_the_cluster() -> None:
    """Though how long they run is not known."""
    few = node(cpu=4)
    few["status"]["allocatable"]["pods"] = "4"
    objects = [few, running(pod("a", 3, annotations={ESTIMATE: "30m"})), cron_job(), pod("b", 3)]
    report = asked(objects, name="b")
    assert wait(report.starts[0]) == 20 * 60
    assert (
        "how long pods of CronJob/default/cj run is not known: it is assumed that later ones end "
        "before the next run" in report.notes
    )


@pytest.mark.parametrize("within", [None, 1800.0])
def test_beside_a_cron_job_what_never_starts_says_so(within: float | None) -> None:
    """A queue that is too small is not a node that is."""
    group = pod_group("g", 2)
    group["spec"]["queue"] = "small"
    group["metadata"] |= {"namespace": "default", "uid": "g"}
    small = queue("small", capability={"cpu": "1"})
    members = [pod(f"g-{i}", cpu=1, annotations={GROUP: "g"}) for i in range(2)]
    objects = [node(cpu=4), cron_job(), small, group, *members]
    limits = {"within": within} if within else {"occurrences": 20}
    (found,) = asked(objects, "podgroup", "g", **limits).starts
    assert found.status is StartStatus.NEVER
    assert "queue small would have more cpu than its capability" in found.message


def test_what_starts_only_while_a_pod_without_an_end_stays_is_not_said_to_start_never() -> None:
    """Once that pod has ended, a reservation for others takes the node."""
    known = running(pod("a", annotations={ESTIMATE: "5h"}))
    objects = [node(), known, running(pod("stays", 1)), reservation("r", 4, "9000h"), pod("b")]
    assert wait(answer(objects, "b")) == 4 * 3600 + 50 * 60
    found = answer([*objects, cron_job()], "b", occurrences=15)
    assert found.status is StartStatus.UNKNOWN
    assert "--within is given" in found.until


def test_the_start_is_that_of_the_end_at_any_fraction_of_a_second() -> None:
    """Times in a simulation are in microseconds, the time at which it begins is not."""
    on_node = {"phase": "Available", "nodeName": "n1", "allocatable": {"cpu": "3"}}
    objects = [node(), reservation("r", 3, "80m", **on_node), pod("b")]
    starts = set()
    for i in range(20):
        found = answer(objects, "b", now=NOON + i / 20 + i / 3e7)
        assert found.start is not None
        starts |= {found.start.expected, found.waits_for[0].at.expected}
    assert starts == {"2026-01-01T12:20:00Z"}


def test_beside_such_a_schedule_what_starts_early_is_exact_and_what_is_too_large_never_starts() -> None:
    stated = {ESTIMATE: "30m"}
    objects = [node(), running(pod("a", annotations=stated)), every_minute(1)]
    assert wait(answer([*objects, pod("b")], "b", occurrences=30)) == 20 * 60
    large = pod("large", cpu=400)
    assert answer([*objects, large], "large", occurrences=5).status is StartStatus.NEVER


def test_a_forecast_that_ends_early_ignores_pods_of_other_schedulers() -> None:
    other = pod("other", cpu=400, schedulerName="defualt-scheduler")
    objects = [node(), running(pod("a", annotations={ESTIMATE: "15m"})), every_minute(4), other]
    found = answer([*objects, pod("b")], "b", occurrences=20)
    assert found.status is StartStatus.UNKNOWN


def test_random_futures_share_the_reservations_of_schedules() -> None:
    objects = [node(), running(pod("a", activeDeadlineSeconds=1800)), every_minute(0), pod("b")]
    report = asked(objects, name="b", occurrences=50)
    assert report.starts[0].status is StartStatus.EXPECTED
    assert 1 < report.futures < 31


def test_a_deadline_alone_gives_only_the_latest_start() -> None:
    objects = [node(), running(pod("a", activeDeadlineSeconds=1800)), pod("b")]
    found = answer(objects, "b")
    assert found.wait is not None
    assert found.wait.earliest == 0 and found.wait.latest == 1200


@pytest.mark.parametrize("job_first", [True, False])
def test_so_does_the_deadline_of_a_job(job_first: bool) -> None:
    labels, member = {"c": "j"}, running(owned(pod("a", restartPolicy="Never"), "Job", "j"))
    member["metadata"]["labels"] = labels
    template = {"metadata": {"labels": labels}, "spec": pod("x", restartPolicy="Never")["spec"]}
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "j", "namespace": "default", "uid": "j"},
        "spec": {
            "activeDeadlineSeconds": 1800,
            "selector": {"matchLabels": labels},
            "template": template,
        },
        "status": {"startTime": "2026-01-01T11:50:00Z", "active": 1},
    }
    found = answer([node(), *((job, member) if job_first else (member, job)), pod("b")], "b")
    assert found.wait is not None and isinstance(found.wait.latest, float)
    assert found.wait.earliest == 0 and 1200 <= found.wait.latest <= 1230
    (ends,) = found.waits_for
    assert ends.estimate is not None
    assert ends.estimate.text.startswith("at the latest by activeDeadlineSeconds of Job j")


def test_ended_pods_of_the_owner_tell_how_long_it_takes() -> None:
    runs = [
        owned(
            ended(pod(f"etl-{i}"), "2026-01-01T09:00:00Z", f"2026-01-01T09:{30 + i}:00Z"), "Job", "etl"
        )
        for i in range(8)
    ]
    objects = [node(), *runs, owned(running(pod("etl-now")), "Job", "etl"), pod("b")]
    report = asked(objects, name="b")
    found = report.starts[0]
    assert report.futures == 31
    assert found.status is StartStatus.EXPECTED and found.wait is not None
    earliest, latest = found.wait.earliest, found.wait.latest
    assert isinstance(earliest, float) and isinstance(latest, float)
    assert 15 * 60 < earliest < 22 * 60 < 25 * 60 < latest < 35 * 60
    assert found.waits_for[0].estimate is not None
    assert found.waits_for[0].estimate.samples == 8
    assert asked(objects, name="b").starts == report.starts, "the same seed gives the same answer"


def test_a_history_from_elsewhere_counts() -> None:
    history = DurationHistory()
    for i in range(5):
        history.add(owned(pod(f"p{i}"), "Job", "etl-*") | {}, 3600.0)
    objects = [node(), owned(running(pod("x")), "Job", "etl-29000001"), pod("b")]
    assert answer(objects, "b").status is StartStatus.UNKNOWN
    assert answer(objects, "b", history=history).status is StartStatus.EXPECTED


def test_a_gang_starts_when_all_of_it_fits() -> None:
    label = {"pod-group.scheduling.sigs.k8s.io": "g"}
    members = [pod(f"g-{i}", cpu=2) for i in range(2)]
    for each in members:
        each["metadata"]["labels"] = label
    group = {
        "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
        "kind": "PodGroup",
        "metadata": {"name": "g", "namespace": "default"},
        "spec": {"minMember": 2},
    }
    objects = [
        node(),
        running(pod("a", cpu=1, annotations={ESTIMATE: "20m"})),
        running(pod("b", cpu=1, annotations={ESTIMATE: "40m"})),
        group,
        *members,
    ]
    assert wait(answer(objects, "g", kind="podgroup")) == 30 * 60
    assert wait(answer(objects, "g-0")) == 30 * 60


def test_the_members_of_a_gang_are_neither_before_it_nor_in_its_way() -> None:
    members = [pod(f"g-{i}", cpu=4) for i in range(3)]
    for each in members:
        each["metadata"]["labels"] = {"pod-group.scheduling.sigs.k8s.io": "g"}
    group = {
        "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
        "kind": "PodGroup",
        "metadata": {"name": "g", "namespace": "default"},
        "spec": {"minMember": 3},
    }
    ends = {"n1": "20m", "n2": "30m", "n3": "40m"}
    objects = [
        *map(node, ends),
        *(running(pod(f"on-{at}", annotations={ESTIMATE: end}), at) for at, end in ends.items()),
        group,
        *members,
    ]
    report = asked(objects, "podgroup", "g")
    (found,) = report.starts
    assert wait(found) == 30 * 60
    assert found.node == "n1, n2, n3" and found.pods_before == 0
    assert [each.object for each in found.waits_for] == [
        *("Pod/default/on-n3", "Pod/default/on-n2", "Pod/default/on-n1")
    ]
    assert not [note for note in report.notes if "no known end" in note]


@pytest.mark.parametrize("first", ["large", "small"])
def test_members_of_one_second_are_tried_in_the_order_of_their_creation(first: str) -> None:
    """The names are in the order large, small; the large one fits one node only, and the small one
    would take it."""
    members = [pod("large", cpu=5), pod("small", cpu=4)]
    for each in members:
        each["metadata"]["labels"] = {"pod-group.scheduling.sigs.k8s.io": "g"}
        each["metadata"]["creationTimestamp"] = "2026-01-01T11:00:00Z"
        each["metadata"]["resourceVersion"] = "98" if each["metadata"]["name"] == first else "102"
    group = {
        "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
        "kind": "PodGroup",
        "metadata": {"name": "g", "namespace": "default"},
        "spec": {"minMember": 2},
    }
    found = answer([node("n1", cpu=4), node("n2", cpu=5), group, *members], "g", kind="podgroup")
    assert found.status is (StartStatus.EXPECTED if first == "large" else StartStatus.NEVER)


def test_a_job_starts_with_its_first_pod_even_if_its_pods_do_not_exist() -> None:
    template = {"spec": {"restartPolicy": "Never", **pod("x")["spec"]}}
    job: Raw = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "j", "namespace": "default"},
        "spec": {"template": template},
    }
    objects = [node(), running(pod("a", annotations={ESTIMATE: "30m"})), job]
    assert wait(answer(objects, "j", kind="job")) == 20 * 60
    full = [
        node(),
        running(pod("a")),
        job | {"spec": {**job["spec"], "parallelism": 3, "completions": 3}},
    ]
    assert answer(full, "j", kind="job").message == "none of its pods starts"
    job["spec"] = {"template": template, "suspend": True}
    found = answer([node(), job], "j", kind="job")
    assert found.status is StartStatus.NEVER and "suspend" in found.until


def reservation(name: str, cpu: int, ttl: str = "0s", **status: Any) -> Raw:
    return {
        "apiVersion": "scheduling.koordinator.sh/v1alpha1",
        "kind": "Reservation",
        "metadata": {"name": name, "creationTimestamp": "2026-01-01T11:00:00Z"},
        "spec": {
            "template": {"spec": pod("x", cpu)["spec"]},
            "owners": [{"labelSelector": {"matchLabels": {"app": "x"}}}],
            "ttl": ttl,
        },
        "status": status,
    }


def test_a_reservation_is_available_when_there_is_capacity() -> None:
    objects = [node(), running(pod("a", annotations={ESTIMATE: "30m"})), reservation("r", 3)]
    assert wait(answer(objects, "r", kind="reservation")) == 20 * 60


def test_a_reservation_that_expires_first_never_starts() -> None:
    objects = [node(), running(pod("a", annotations={ESTIMATE: "30m"})), reservation("r", 3, "65m")]
    found = answer(objects, "r", kind="reservation")
    assert found.status is StartStatus.NEVER
    assert found.message.startswith("it expires at 2026-01-01T12:05:00Z, before it gets a node: 0/1")


def test_whether_a_reservation_expires_first_is_unknown_if_the_end_of_a_pod_is() -> None:
    objects = [node(), running(pod("a")), reservation("r", 3, "65m")]
    found = answer(objects, "r", kind="reservation")
    assert found.status is StartStatus.UNKNOWN
    assert [each.object for each in found.needs] == ["Pod/default/a"]
    assert "expires at 2026-01-01T12:05:00Z, unless capacity is free before" in found.message


def test_a_reservation_that_should_have_expired_is_not_said_to_need_pods() -> None:
    found = answer([node(), reservation("r", 3, "50m")], "r", kind="reservation")
    assert found.message == "it expires at 2026-01-01T12:00:00Z, before it gets a node"


def test_a_job_that_its_deadline_ends_first_never_starts() -> None:
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "j", "namespace": "default"},
        "spec": {
            "activeDeadlineSeconds": 600,
            "template": {"spec": pod("", restartPolicy="Never")["spec"]},
        },
    }
    found = answer([node(), running(pod("a", annotations={ESTIMATE: "30m"})), job], "j", kind="job")
    assert found.status is StartStatus.NEVER
    assert found.message == (
        "it reaches its activeDeadlineSeconds of 600 at 2026-01-01T12:10:00Z, before a pod of it starts"
    )


def test_a_pod_starts_when_a_reservation_expires() -> None:
    held = reservation("r", 3, "90m", phase="Available", nodeName="n1", allocatable={"cpu": "3"})
    held["metadata"]["uid"] = "r"
    found = answer([node(), held, pod("b")], "b")
    assert wait(found) == 30 * 60
    assert found.waits_for[0].object == "Reservation/r"


def test_a_victim_that_stops_takes_up_to_its_grace_period() -> None:
    victim = running(pod("a"))
    victim["metadata"] |= {
        "deletionTimestamp": "2026-01-01T12:00:30Z",
        "deletionGracePeriodSeconds": 30,
    }
    found = answer([node(), victim, pod("b")], "b")
    assert found.wait is not None and found.status is StartStatus.EXPECTED
    earliest, latest = found.wait.earliest, found.wait.latest
    assert isinstance(earliest, float) and isinstance(latest, float)
    assert 0 <= earliest < 10 < 20 < latest <= 30


@pytest.mark.parametrize(
    ("until", "latest"), [("2026-01-01T12:00:10Z", 10), ("2026-01-01T11:59:00Z", 0)]
)
def test_a_victim_is_gone_by_its_deletion_timestamp(until: str, latest: float) -> None:
    victim = running(pod("a"))
    victim["metadata"] |= {"deletionTimestamp": until, "deletionGracePeriodSeconds": 1200}
    report = asked([node(), victim, pod("b")], name="b")
    found = report.starts[0].wait
    assert found is not None and isinstance(found.latest, float)
    assert latest * 0.7 <= found.latest <= latest
    assert not any("no known end" in note for note in report.notes)


def schedule(**spec: Any) -> Raw:
    """Two cpu from two to four every night."""
    template = {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "2"}}}]}}
    owners = [{"labelSelector": {"matchLabels": {"app": "owner"}}}]
    given = {"schedule": "0 2 * * *", "duration": "2h"}
    return {
        "apiVersion": "scheduling.holdfast.io/v1alpha1",
        "kind": "ReservationSchedule",
        "metadata": {"name": "s", "uid": "s", "creationTimestamp": "2026-01-01T11:00:00Z"},
        "spec": {**given, "template": {"spec": {"owners": owners, "template": template}}, **spec},
    }


def test_the_next_occurrences_of_a_schedule() -> None:
    found = asked([node(), schedule()], "reservationschedule", "s").starts
    assert [each.start.expected for each in found if each.start] == [
        f"2026-01-0{day}T02:00:00Z" for day in (2, 3, 4)
    ]
    assert all(each.object.startswith("Reservation/s-") and each.node == "n1" for each in found)


def test_occurrences_beyond_the_horizon_are_left_out() -> None:
    (found,) = asked([node(), schedule()], "reservationschedule", "s", within=20 * 3600.0).starts
    assert wait(found) == 14 * 3600


def test_all_schedules_have_their_next_occurrence() -> None:
    (found,) = asked([node(), schedule()], "reservationschedule").starts
    assert wait(found) == 14 * 3600


def test_a_suspended_schedule_never_starts() -> None:
    found = answer([node(), schedule(suspend=True)], "s", "reservationschedule")
    assert (found.status, found.until) == (StartStatus.NEVER, "spec.suspend is false")


def test_an_invalid_schedule_has_no_occurrences() -> None:
    objects = [schedule(schedule="0 25 * * *")]
    with pytest.raises(NoSuchTarget, match='reservationschedule "s": '):
        find_targets(objects, "reservationschedule", "s", "", NOON)


@pytest.mark.parametrize(("provisioner", "notes"), [("ebs.csi.aws.com", 1), (NO_PROVISIONER, 0)])
def test_a_volume_that_a_provisioner_has_to_make_is_named(provisioner: str, notes: int) -> None:
    spec: Raw = {"storageClassName": "fast", "accessModes": ["ReadWriteOnce"]}
    spec["resources"] = {"requests": {"storage": "1Gi"}}
    named = {"name": "c", "namespace": "default"}
    claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": named, "spec": spec}
    kept = {"kind": "StorageClass", "metadata": {"name": "fast"}, "provisioner": provisioner}
    wants = pod("b")
    wants["spec"]["volumes"] = [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]
    report = asked([node(), claim, {"apiVersion": "storage.k8s.io/v1", **kept}, wants], "pod", "b")
    found = [each for each in report.notes if "it is assumed that" in each]
    assert len(found) == notes
    assert all("ebs.csi.aws.com makes the volume for claim default/c" in each for each in found)


@pytest.mark.parametrize("ends", ["", "30h"])
def test_an_eviction_that_a_budget_refuses_is_tried_less_and_less_often(
    monkeypatch: pytest.MonkeyPatch, ends: str
) -> None:
    """A week of back-offs of ten seconds would take minutes. What happens meanwhile is not missed."""
    rounds = 0
    run_round = Scheduler.round

    def counted(self: Scheduler, now: float, *args: Any, **more: Any) -> Any:
        nonlocal rounds
        rounds += 1
        return run_round(self, now, *args, **more)

    monkeypatch.setattr(Scheduler, "round", counted)
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "a", "namespace": "default", "uid": "budget"},
        "spec": {"selector": {}, "minAvailable": "100%"},
        "status": {"disruptionsAllowed": 0},
    }
    of = {name: {"scheduling.volcano.sh/queue-name": name} for name in ("mine", "other")}
    runs = {ESTIMATE: ends} if ends else {}
    busy = [
        running(pod(name, cpu=2, annotations={**of["other"], **(runs if name == "a" else {})}))
        for name in ("a", "b")
    ]
    mine = pod("c", cpu=2, annotations=of["mine"])
    found = answer([node(), queue("mine"), queue("other"), budget, *busy, mine], "c")
    assert found.status is (StartStatus.EXPECTED if ends else StartStatus.UNKNOWN)
    assert not ends or wait(found) == 30 * 3600 - 600
    assert 100 < rounds < 20_000
