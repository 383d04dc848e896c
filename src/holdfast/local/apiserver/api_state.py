"""What the API is served from: the objects, the types, the time."""

from copy import copy
from dataclasses import dataclass, field

from holdfast.local.apiserver.request_info import WriteOptions
from holdfast.local.apiserver.responses import Encoder
from holdfast.local.apiserver.template_memo import PodTemplates
from holdfast.local.clock import LocalClock
from holdfast.local.store import Draft, Identity, Key, RandomNames, Raw, Store
from holdfast.machinery.schema import Catalogue, ResourceType
from holdfast.machinery.schema.versions import key_of
from holdfast.machinery.status import Resource

_DEFAULT = WriteOptions()
_MOST_WARNINGS = 512
"""More than an answer has room for."""


class ApiState:
    """One per process. Everything that changes objects goes through `store`, and takes effect at
    once."""

    def __init__(
        self,
        store: Store,
        clock: LocalClock,
        catalogue: Catalogue | None = None,
        identity: Identity | None = None,
    ) -> None:
        self.store = store
        self.clock = clock
        self.catalogue = catalogue if catalogue is not None else Catalogue()
        self.identity = identity if identity is not None else Identity(RandomNames(), clock.stamp)
        self.encoder = Encoder()
        self.templates: PodTemplates | None = PodTemplates(store)

    def drafting(self, draft: Draft) -> "ApiState":
        """The same cluster for a request in another thread, whose write is drafted."""
        cluster = copy(self)
        cluster.store = draft
        cluster.templates = None  # which is not for threads
        return cluster

    def stamp(self, after: float = 0.0) -> str:
        return self.clock.stamp(after)

    def namespace(self, name: str) -> Raw | None:
        return self.store.get(Key("", "Namespace", "", name))


@dataclass(slots=True)
class Call:
    """One request about objects of a type, as the verbs see it. What is to be told to the client beside
    the answer is put into `warnings`."""

    cluster: ApiState
    type: ResourceType
    namespace: str = ""
    name: str = ""
    subresource: str = ""
    options: WriteOptions = _DEFAULT
    warnings: list[str] = field(default_factory=list)

    @property
    def key(self) -> Key:
        return key_of(self.type, self.namespace, self.name)

    @property
    def store(self) -> Store:
        return self.cluster.store

    @property
    def manager(self) -> str:
        return self.options.manager

    @property
    def restores(self) -> bool:
        return False

    def generated_name(self, prefix: str) -> str:
        return self.cluster.identity.name(prefix)

    def identified(self, raw: Raw) -> Raw:
        return self.cluster.identity.new(self.key, raw)

    def stamp(self, after: float = 0.0) -> str:
        return self.cluster.stamp(after)

    @property
    def resource(self) -> Resource:
        return Resource(self.type.group, self.type.plural)

    def warn(self, text: str) -> None:
        if len(self.warnings) < _MOST_WARNINGS and text not in self.warnings:
            self.warnings.append(text)

    def named(self, name: str) -> "Call":
        return Call(
            self.cluster, self.type, self.namespace, name, self.subresource, self.options, self.warnings
        )
