"""`holdfast explain`"""

from contextlib import suppress
from itertools import chain
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli import completers
from holdfast.cli.options import (
    CLUSTER,
    Config,
    Context,
    Failure,
    Kubeconfig,
    Namespace,
    OutputReport,
    Snapshot,
    Where,
)
from holdfast.explanation.explained_kinds import (
    EXPLAINED,
    KnownKind,
    instead_of,
    known_kinds,
    unknown_kind,
)

if TYPE_CHECKING:
    from holdfast.api.kinds import KindInfo
    from holdfast.kube.object_client import ObjectLister, Raw
    from holdfast.snapshot.cluster_snapshot import ClusterSnapshot


def _complete_kind(ctx: typer.Context, incomplete: str) -> list[str]:
    """Kinds; after `KIND/` the names of that kind."""
    kind, slash, _ = incomplete.partition("/")
    if slash:
        return [f"{kind}/{name}" for name in _names(ctx, kind)]
    return [each for each in EXPLAINED if each.startswith(incomplete)]


def _complete_name(ctx: typer.Context, incomplete: str) -> list[str]:
    return _names(ctx, str(ctx.params.get("kind") or ""))


def _names(ctx: typer.Context, title: str) -> list[str]:
    kind = known_kinds().get(title.lower())
    infos = kind.infos if kind is not None else ()
    return sorted({name for info in infos for name in completers.object_names(ctx, info)})


def explain(
    kind: Annotated[
        str,
        typer.Argument(
            metavar="KIND",
            help=f"One of {', '.join(EXPLAINED)}; or KIND/NAME.",
            autocompletion=_complete_kind,
            show_default=False,
        ),
    ],
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME",
            help="Name of the object.",
            autocompletion=_complete_name,
            show_default=False,
        ),
    ] = None,
    output: Annotated[
        OutputReport, typer.Option("-o", "--output", help="Output format.")
    ] = OutputReport.TEXT,
    config: Config = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    namespace: Namespace = None,
    all_namespaces: Annotated[
        bool,
        typer.Option(
            "-A",
            "--all-namespaces",
            help="Look for the name in all namespaces.",
            rich_help_panel=CLUSTER,
        ),
    ] = False,
    snapshot: Snapshot = None,
) -> None:
    """Explain why a pod, reservation, pod group or workload is pending or placed.

    Of a node: whether it takes pods, what is on it, what is left, and which pending pods would fit.
    Of a queue: its limits, what it uses of them, and why pods wait in it.
    Of a podmigrationjob: the step that it has reached, and what that waits for.
    Of a cronjob: its next run, runs that were missed, and the pods of its newest Job.
    Of a persistentvolumeclaim or resourceclaim: why it is not bound or allocated, and which pod waits.

    Reads the same objects as the scheduler and evaluates the same plugins on them. Writes nothing.

    Examples:
      # Why a pod is pending, and what would help
      holdfast explain pod web-0

      # A pod in whichever namespace it is
      holdfast explain pod web-0 -A

      # From a file of `holdfast snapshot`, or of `kubectl get -o yaml`
      holdfast explain pod web-0 --snapshot cluster.json.gz

      # What is on a node, and which pending pods would fit
      holdfast explain node/node-1

      # Why pods of a queue wait
      holdfast explain queue/research

      # What the migration of a pod waits for
      holdfast explain podmigrationjob/move-web

      # Why a CronJob did not run
      holdfast explain cronjob/nightly

      # A reservation, as data
      holdfast explain reservation/peak -o json
    """
    from holdfast.cli.client import ObjectLister, ask_any
    from holdfast.cli.explanation_text import terminal_width, text
    from holdfast.cli.options import load_setup
    from holdfast.cli.printing import as_json, as_yaml
    from holdfast.cli.snapshot import warned_snapshot
    from holdfast.explanation.explainer import declared_gang, find
    from holdfast.explanation.explainer import explain as explain_object
    from holdfast.explanation.facts.admitted_pods import RUNTIME_CLASS
    from holdfast.sim.forecast.snapshots import SnapshotForecast
    from holdfast.sim.garbage import seldom_collected
    from holdfast.snapshot.cluster_snapshot import unknown_configuration
    from holdfast.snapshot.reader import running_setup

    wanted, name = _read(kind, name)
    given = load_setup(config) if config is not None else None

    async def work(server: ObjectLister) -> str:
        setup, unknown = (given, "") if given is not None else await running_setup(server)
        try:
            found = await _located(server, wanted, name, namespace, all_namespaces)
            cluster = await warned_snapshot(server, setup)
        except Failure:
            if wanted.name != "podgroup":
                raise
            cluster = await warned_snapshot(server, setup)
            declared = declared_gang(cluster, name, server.namespace)
            if declared is None:
                raise
            found = declared
        where = found["metadata"].get("namespace") or ""
        raw = find(cluster, wanted.infos, name, where) or found
        await _add_deployment(server, cluster, raw)
        unwatched = await _unwatched(server)
        cluster.unwatched = [*chain.from_iterable(unwatched.values())]
        cluster.forecast = SnapshotForecast(cluster, setup, cluster.unwatched)
        if RUNTIME_CLASS in unwatched:
            classes = {("", each["metadata"]["name"]): each for each in unwatched[RUNTIME_CLASS]}
            cluster.objects[RUNTIME_CLASS.api_version, RUNTIME_CLASS.kind] = classes
        await _add_jobs(server, cluster, raw)
        cluster.unknown_configuration = unknown
        with seldom_collected():
            report = explain_object(cluster, raw)
        report.events = await server.events(raw)
        if unknown and not snapshot:
            typer.echo(f"warning: {unknown_configuration(unknown)}", err=True)
        match output:
            case OutputReport.JSON:
                return as_json(report.data())
            case OutputReport.YAML:
                return as_yaml(report.data())
        return text(report, server.now(), terminal_width())

    typer.echo(ask_any(Where(kubeconfig, context, namespace, tuple(snapshot or ())), work), nl=False)


def _read(kind: str, name: str | None) -> tuple[KnownKind, str]:
    """The kind and the name, of `KIND NAME` or `KIND/NAME`. Raises Failure."""
    if name is None:
        kind, _, name = kind.partition("/")
    known = known_kinds()
    wanted = known.get(kind.lower())
    if wanted is None and (instead := instead_of(kind)):
        raise Failure(1, [f"KIND: cannot explain {kind!r}: explain {instead}"])
    if wanted is None:
        hint = unknown_kind(kind, known, list(EXPLAINED))
        raise Failure(1, [f"KIND: cannot explain {kind!r}{hint}"])
    if not name:
        raise Failure(1, [f"NAME: which {kind}? Give KIND NAME or KIND/NAME"])
    return wanted, name


async def _add_deployment(server: "ObjectLister", cluster: "ClusterSnapshot", raw: "Raw") -> None:
    """Adds the Deployment that a pod or ReplicaSet is of: schedulers do not read Deployments, but a
    rollout may be why pods wait."""
    from holdfast.explanation.advice.rollouts import deployment_name
    from holdfast.explanation.facts.workload_dry_runs import DEPLOYMENT
    from holdfast.kube.errors import KubernetesError

    namespace = raw["metadata"].get("namespace") or ""
    if name := deployment_name(cluster, raw):
        with suppress(KubernetesError):
            known = cluster.objects.setdefault((DEPLOYMENT.api_version, DEPLOYMENT.kind), {})
            known[namespace, name] = await server.get(DEPLOYMENT, name, namespace)


async def _add_jobs(server: "ObjectLister", cluster: "ClusterSnapshot", raw: "Raw") -> None:
    """Adds the Jobs beside a CronJob, which schedulers do not read."""
    from holdfast.explanation.subjects.cron_jobs import JOB
    from holdfast.kube.errors import ApiError

    namespace = raw["metadata"].get("namespace") or ""
    if raw["kind"] != "CronJob":
        return
    try:
        jobs, _ = await server.listed(JOB, namespace)
    except ApiError as error:
        if error.status not in (403, 404):
            raise
        typer.echo(f"warning: its Jobs are not known: {error.message}", err=True)
        return
    known = cluster.objects.setdefault((JOB.api_version, JOB.kind), {})
    known.update({(namespace, each["metadata"]["name"]): each for each in jobs})


async def _unwatched(server: "ObjectLister") -> "dict[KindInfo, list[Raw]]":
    """What creates pods and what that depends on, of the kinds that schedulers do not read, as far as
    we may: a forecast needs them."""
    from holdfast.kube.decoding import WATCHED
    from holdfast.kube.errors import KubernetesError
    from holdfast.snapshot.reader import SNAPSHOT_KINDS

    watched = [each.info for each in WATCHED]
    found: dict[KindInfo, list[Raw]] = {}
    for kind in SNAPSHOT_KINDS:
        if kind.info not in watched:
            with suppress(KubernetesError):
                found[kind.info] = (await server.listed(kind.info))[0]
    return found


async def _located(
    server: "ObjectLister", kind: KnownKind, name: str, namespace: str | None, everywhere: bool
) -> "Raw":
    """The object; of all namespaces, the only one of that name. Raises Failure."""
    from holdfast.cli.client import failure
    from holdfast.cli.get import warn_of_namespace
    from holdfast.cli.kinds.kind import similar_object
    from holdfast.kube.errors import ApiError

    infos = kind.infos
    found: list[Raw] = []
    refused: ApiError | None = None
    for info in infos:
        try:
            if everywhere and info.namespaced:
                found += (await server.listed(info, fields=f"metadata.name={name}"))[0]
            else:
                found.append(await server.get(info, name, server.namespace if info.namespaced else ""))
        except ApiError as error:
            if error.status != 404:
                raise
            refused = refused or error
    namespaces = sorted({raw["metadata"].get("namespace") or "" for raw in found})
    if len(namespaces) > 1:
        raise Failure(
            1, [f'{kind.name} "{name}" is in several namespaces: use -n {" or -n ".join(namespaces)}']
        )
    if found:
        return found[0]
    if everywhere and infos[0].namespaced:
        here = await similar_object(server, infos[0], name, server.namespace)
        raise Failure(1, [f'no {kind.name} "{name}" in any namespace{here}'])
    assert refused is not None
    if namespace:
        await warn_of_namespace(server, namespace)
    hint = await similar_object(server, infos[0], name, server.namespace)
    raise Failure(1, [f"{line}{hint}" for line in failure(refused).lines], as_it_is=True)
