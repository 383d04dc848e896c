"""Columns of kinds of addresses, and of kinds that are mostly stored: quotas, autoscalers, ingresses,
network policies, admission, roles, templates.
"""

from typing import Any

from holdfast.local.apiserver.tables.columns import (
    AGE,
    NAME,
    NONE,
    UNKNOWN,
    UNSET,
    Printer,
    TableColumn,
    age,
    labels_text,
    names_and_images,
    selector_text,
    wide,
)
from holdfast.local.store import Raw

_SHOWN = 3
_SHOWN_METRICS = 2
_DEFAULT_CLASS = "ingressclass.kubernetes.io/is-default-class"


def _some(found: list[str], empty: str) -> str:
    """The first few, and how many more there are."""
    more = len(found) - _SHOWN
    text = ",".join(found[:_SHOWN]) + (f" + {more} more..." if more > 0 else "")
    return text or empty


def _endpoint_slice(raw: Raw, now: float) -> list[Any]:
    ports = [str(port.get("port", "*")) for port in raw.get("ports") or ()]
    addresses = [each for endpoint in raw.get("endpoints") or () for each in endpoint["addresses"]]
    return [
        raw["metadata"]["name"],
        raw.get("addressType", ""),
        _some(ports, UNSET),
        _some(addresses, UNSET),
        age(raw, now),
    ]


def _endpoints(raw: Raw, now: float) -> list[Any]:
    found: list[str] = []
    for subset in raw.get("subsets") or ():
        addresses = [each.get("ip", "") for each in subset.get("addresses") or ()]
        ports = [port.get("port") for port in subset.get("ports") or ()]
        found += [f"{ip}:{port}" for port in ports for ip in addresses] if ports else addresses
    return [raw["metadata"]["name"], _some(found, NONE), age(raw, now)]


def _autoscaler(raw: Raw, now: float) -> list[Any]:
    spec, status = raw.get("spec") or {}, raw.get("status") or {}
    target = spec.get("scaleTargetRef") or {}
    least = spec.get("minReplicas")
    return [
        raw["metadata"]["name"],
        f"{target.get('kind', '')}/{target.get('name', '')}",
        _metrics(spec.get("metrics") or []),
        UNSET if least is None else str(least),
        spec.get("maxReplicas", 0),
        status.get("currentReplicas", 0),
        age(raw, now),
    ]


def _metrics(metrics: list[Raw]) -> str:
    shown, more = metrics[:_SHOWN_METRICS], len(metrics) - _SHOWN_METRICS
    text = ", ".join(_metric(each) for each in shown)
    return f"{text} + {more} more..." if more > 0 else text or NONE


def _metric(metric: Raw) -> str:
    """The current value is unknown, since nothing measures it."""
    for kind in ("resource", "containerResource"):
        if kind in metric:
            source = metric[kind] or {}
            target = source.get("target") or {}
            percent = target.get("averageUtilization")
            wanted = target.get("averageValue") or ("<auto>" if percent is None else f"{percent}%")
            return f"{source.get('name', '')}: {UNKNOWN}/{wanted}"
    for kind, mark in (("pods", ""), ("object", " (avg)"), ("external", " (avg)")):
        if kind in metric:
            target = (metric[kind] or {}).get("target") or {}
            average = target.get("averageValue")
            return f"{UNKNOWN}/{target.get('value', 0) if average is None else f'{average}{mark}'}"
    return "<unknown type>"


def _quota(raw: Raw, now: float) -> list[Any]:
    """What the quota controller has counted; the spec says nothing of usage."""
    status = raw.get("status") or {}
    hard, used = status.get("hard") or {}, status.get("used") or {}
    texts = {name: f"{name}: {used.get(name, 0)}/{amount}" for name, amount in sorted(hard.items())}
    limits = [text for name, text in texts.items() if name.startswith("limits.")]
    requests = [text for name, text in texts.items() if not name.startswith("limits.")]
    return [raw["metadata"]["name"], ", ".join(requests), ", ".join(limits), age(raw, now)]


def _created_at(raw: Raw, now: float) -> list[Any]:
    return [raw["metadata"]["name"], raw["metadata"].get("creationTimestamp")]


def _webhooks(raw: Raw, now: float) -> list[Any]:
    return [raw["metadata"]["name"], len(raw.get("webhooks") or ()), age(raw, now)]


def _network_policy(raw: Raw, now: float) -> list[Any]:
    selector = (raw.get("spec") or {}).get("podSelector")
    return [raw["metadata"]["name"], selector_text(selector), age(raw, now)]


def _role_binding(raw: Raw, now: float) -> list[Any]:
    role = raw.get("roleRef") or {}
    named: dict[str, list[str]] = {"User": [], "Group": [], "ServiceAccount": []}
    for subject in raw.get("subjects") or ():
        name = subject.get("name", "")
        if subject.get("kind") == "ServiceAccount":
            name = f"{subject.get('namespace', '')}/{name}"
        named.setdefault(subject.get("kind", ""), []).append(name)
    return [
        raw["metadata"]["name"],
        f"{role.get('kind', '')}/{role.get('name', '')}",
        age(raw, now),
        ", ".join(named["User"]),
        ", ".join(named["Group"]),
        ", ".join(named["ServiceAccount"]),
    ]


def _ingress(raw: Raw, now: float) -> list[Any]:
    spec = raw.get("spec") or {}
    rules = spec.get("rules") or []
    balancer = (raw.get("status") or {}).get("loadBalancer") or {}
    addresses = {each.get("ip") or each.get("hostname") or "" for each in balancer.get("ingress") or ()}
    return [
        raw["metadata"]["name"],
        spec.get("ingressClassName") or NONE,
        _some([rule["host"] for rule in rules if rule.get("host")], "*"),
        ",".join(sorted(filter(None, addresses))),
        "80, 443" if spec.get("tls") else "80",
        age(raw, now),
    ]


def _ingress_class(raw: Raw, now: float) -> list[Any]:
    name, spec = raw["metadata"]["name"], raw.get("spec") or {}
    if (raw["metadata"].get("annotations") or {}).get(_DEFAULT_CLASS) == "true":
        name += " (default)"
    given = spec.get("parameters")
    parameters = NONE
    if given:
        group = f".{given['apiGroup']}" if given.get("apiGroup") else ""
        parameters = f"{given.get('kind', '')}{group}/{given.get('name', '')}"
    return [name, spec.get("controller", ""), parameters, age(raw, now)]


def _admission_policy(raw: Raw, now: float) -> list[Any]:
    spec = raw.get("spec") or {}
    kind = spec.get("paramKind")
    text = f"{kind.get('apiVersion', '')}/{kind.get('kind', '')}" if kind else UNSET
    return [raw["metadata"]["name"], len(spec.get("validations") or ()), text, age(raw, now)]


def _admission_policy_binding(raw: Raw, now: float) -> list[Any]:
    spec = raw.get("spec") or {}
    reference = spec.get("paramRef") or {}
    text = UNSET
    if reference.get("name"):
        text = f"{reference.get('namespace') or '*'}/{reference['name']}"
    elif reference.get("selector") is not None:
        text = selector_text(reference["selector"])
    return [raw["metadata"]["name"], spec.get("policyName", ""), text, age(raw, now)]


def _pod_template(raw: Raw, now: float) -> list[Any]:
    template = raw.get("template") or {}
    containers, images = names_and_images((template.get("spec") or {}).get("containers") or ())
    labels = (template.get("metadata") or {}).get("labels")
    return [raw["metadata"]["name"], containers, images, labels_text(labels)]


def _controller_revision(raw: Raw, now: float) -> list[Any]:
    controller = NONE
    for owner in raw["metadata"].get("ownerReferences") or ():
        if owner.get("controller"):
            group = owner.get("apiVersion", "").rpartition("/")[0]
            kind = owner.get("kind", "").lower()
            controller = f"{kind}.{group}/{owner['name']}" if group else f"{kind}/{owner['name']}"
    return [raw["metadata"]["name"], controller, raw.get("revision", 0), age(raw, now)]


def _runtime_class(raw: Raw, now: float) -> list[Any]:
    return [raw["metadata"]["name"], raw.get("handler", ""), age(raw, now)]


_ADMISSION = "admissionregistration.k8s.io"
_NETWORKING = "networking.k8s.io"
_CREATED_AT = Printer((NAME, TableColumn("Created At")), _created_at)
_ROLE_BINDING = Printer(
    (NAME, TableColumn("Role"), AGE, wide("Users"), wide("Groups"), wide("ServiceAccounts")),
    _role_binding,
)
_WEBHOOKS = Printer((NAME, TableColumn("Webhooks", "integer"), AGE), _webhooks)

STORED_ONLY = {
    ("discovery.k8s.io", "EndpointSlice"): Printer(
        (NAME, TableColumn("AddressType"), TableColumn("Ports"), TableColumn("Endpoints"), AGE),
        _endpoint_slice,
    ),
    ("", "Endpoints"): Printer((NAME, TableColumn("Endpoints"), AGE), _endpoints),
    ("", "ResourceQuota"): Printer((NAME, TableColumn("Request"), TableColumn("Limit"), AGE), _quota),
    ("", "LimitRange"): _CREATED_AT,
    ("autoscaling", "HorizontalPodAutoscaler"): Printer(
        (
            NAME,
            TableColumn("Reference"),
            TableColumn("Targets"),
            TableColumn("MinPods"),
            TableColumn("MaxPods"),
            TableColumn("Replicas"),
            AGE,
        ),
        _autoscaler,
    ),
    (_NETWORKING, "Ingress"): Printer(
        (
            NAME,
            TableColumn("Class"),
            TableColumn("Hosts"),
            TableColumn("Address"),
            TableColumn("Ports"),
            AGE,
        ),
        _ingress,
    ),
    (_NETWORKING, "IngressClass"): Printer(
        (NAME, TableColumn("Controller"), TableColumn("Parameters"), AGE), _ingress_class
    ),
    (_NETWORKING, "NetworkPolicy"): Printer((NAME, TableColumn("Pod-Selector"), AGE), _network_policy),
    (_ADMISSION, "MutatingWebhookConfiguration"): _WEBHOOKS,
    (_ADMISSION, "ValidatingWebhookConfiguration"): _WEBHOOKS,
    (_ADMISSION, "ValidatingAdmissionPolicy"): Printer(
        (NAME, TableColumn("Validations", "integer"), TableColumn("ParamKind"), AGE), _admission_policy
    ),
    (_ADMISSION, "ValidatingAdmissionPolicyBinding"): Printer(
        (NAME, TableColumn("PolicyName"), TableColumn("ParamRef"), AGE), _admission_policy_binding
    ),
    ("", "PodTemplate"): Printer(
        (NAME, TableColumn("Containers"), TableColumn("Images"), TableColumn("Pod Labels")),
        _pod_template,
    ),
    ("apps", "ControllerRevision"): Printer(
        (NAME, TableColumn("Controller"), TableColumn("Revision"), AGE), _controller_revision
    ),
    ("node.k8s.io", "RuntimeClass"): Printer((NAME, TableColumn("Handler"), AGE), _runtime_class),
    ("rbac.authorization.k8s.io", "Role"): _CREATED_AT,
    ("rbac.authorization.k8s.io", "ClusterRole"): _CREATED_AT,
    ("rbac.authorization.k8s.io", "RoleBinding"): _ROLE_BINDING,
    ("rbac.authorization.k8s.io", "ClusterRoleBinding"): _ROLE_BINDING,
}
