"""`holdfast describe`"""

import typer

from holdfast.cli.get import FieldSelector, Names, Selector, Type
from holdfast.cli.options import AllNamespaces, Context, Failure, Kubeconfig, Namespace, Snapshot, Where


def describe(
    type: Type,
    names: Names = None,
    selector: Selector = "",
    field_selector: FieldSelector = "",
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    namespace: Namespace = None,
    all_namespaces: AllNamespaces = False,
    snapshot: Snapshot = None,
) -> None:
    """Show the details of reservations, holds, pods, nodes and queues.

    Of a reservation: owners, amounts, the pods that use it, conditions and events. Of a pod: its
    reservation and why it is pending. Of a node: amounts per resource, and which pod uses which
    reservation.

    Examples:
      # One reservation
      holdfast describe reservation peak

      # A node, with its reservations and pods
      holdfast describe node/node-1

      # All pods of a Deployment
      holdfast describe pods -l app=web
    """
    from holdfast.cli.client import ObjectLister, ask_any
    from holdfast.cli.get import check_selector, none_found, query_of, read_types, warn_of_namespace

    wanted = read_types(type, names or [])
    check_selector(selector)

    async def work(server: ObjectLister) -> list[str]:
        texts: list[str] = []
        queries = [
            (kind, query_of(server, kind, given, all_namespaces, selector, field_selector))
            for kind, given in wanted
        ]
        found = [await kind.find(server, query) for kind, query in queries]
        for (kind, _), each in zip(queries, found, strict=True):
            texts += [await kind.describe(server, row.object) for row in each.rows]
        typer.echo("\n\n".join(texts), nl=False)
        missing = [line for each in found for line in each.missing]
        if missing and type.partition("/")[0] == "queue":
            missing.append("`queue` is the list of pending pods; Queue objects are `queues`")
        if not texts and not missing:
            typer.echo(none_found(queries, found), err=True)
            if namespace:
                await warn_of_namespace(server, namespace)
        return missing

    missing = ask_any(Where(kubeconfig, context, namespace, tuple(snapshot or ())), work)
    if missing:
        raise Failure(1, missing, as_it_is=True)
