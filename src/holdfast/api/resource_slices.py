"""Devices that DRA drivers publish, and their taints: ResourceSlice and DeviceTaintRule.

A device is identified by driver, pool and name. All values are immutable, since allocations and results
share parts of them.
"""

from __future__ import annotations

from typing import NamedTuple

from msgspec import field

from holdfast.api.affinity import NodeSelector
from holdfast.api.meta import Condition, FrozenStruct, Object
from holdfast.api.quantity import Quantity


class DeviceID(NamedTuple):
    """A device of the cluster; sorts by driver, then pool, then name."""

    driver: str
    pool: str
    device: str

    def __str__(self) -> str:
        return f"{self.driver}/{self.pool}/{self.device}"


class DeviceTaint(FrozenStruct, frozen=True):
    """`effect` is NoSchedule, NoExecute, or None, which has no effect."""

    key: str = ""
    value: str = ""
    effect: str = ""
    time_added: str | None = None


class DeviceToleration(FrozenStruct, frozen=True):
    """An empty key tolerates every taint (with Exists), an empty effect every effect. The operator is
    Exists or Equal, which is the default."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None

    def tolerates(self, taint: DeviceTaint) -> bool:
        if self.effect and self.effect != taint.effect:
            return False
        if self.key and self.key != taint.key:
            return False
        match self.operator:
            case "" | "Equal":
                return self.value == taint.value
            case "Exists":
                return True
            case _:
                return False


class DeviceAttribute(FrozenStruct, frozen=True):
    """One of the values is set."""

    int_value: int | None = field(default=None, name="int")
    bool_value: bool | None = field(default=None, name="bool")
    string_value: str | None = field(default=None, name="string")
    version_value: str | None = field(default=None, name="version")
    int_values: tuple[int, ...] | None = field(default=None, name="ints")
    bool_values: tuple[bool, ...] | None = field(default=None, name="bools")
    string_values: tuple[str, ...] | None = field(default=None, name="strings")
    version_values: tuple[str, ...] | None = field(default=None, name="versions")

    @property
    def is_list(self) -> bool:
        """Whether it has several values, which constraints cannot compare."""
        return (self.int_value, self.bool_value, self.string_value, self.version_value) == (None,) * 4


class CapacityRange(FrozenStruct, frozen=True):
    min: Quantity | None = None
    max: Quantity | None = None
    step: Quantity | None = None


class CapacityRequestPolicy(FrozenStruct, frozen=True):
    """How a request for a part of a capacity is rounded up: to one of `valid_values`, or to a step of
    `valid_range`."""

    default: Quantity | None = None
    valid_values: tuple[Quantity, ...] = ()
    valid_range: CapacityRange | None = None


class DeviceCapacity(FrozenStruct, frozen=True):
    value: Quantity = 0
    request_policy: CapacityRequestPolicy | None = None


class DeviceCounter(FrozenStruct, frozen=True):
    value: Quantity = 0


class CounterSet(FrozenStruct, frozen=True):
    """Amounts that the devices of a pool share."""

    name: str = ""
    counters: dict[str, DeviceCounter] = field(default_factory=dict)


class DeviceCounterConsumption(FrozenStruct, frozen=True):
    """What a device takes of a counter set while it is allocated."""

    counter_set: str = ""
    counters: dict[str, DeviceCounter] = field(default_factory=dict)
    compatibility_groups: tuple[str, ...] = ()


class SliceDevice(FrozenStruct, frozen=True):
    """A device of a slice. `node_name`, `node_selector` and `all_nodes` count only in a slice with
    `per_device_node_selection`."""

    name: str = ""
    attributes: dict[str, DeviceAttribute] = field(default_factory=dict)
    capacity: dict[str, DeviceCapacity] = field(default_factory=dict)
    consumes_counters: tuple[DeviceCounterConsumption, ...] = ()
    node_name: str | None = None
    node_selector: NodeSelector | None = None
    all_nodes: bool | None = None
    taints: tuple[DeviceTaint, ...] = ()
    binds_to_node: bool = False
    binding_conditions: tuple[str, ...] = ()
    binding_failure_conditions: tuple[str, ...] = ()
    allow_multiple_allocations: bool = False


class ResourcePool(FrozenStruct, frozen=True):
    """Only slices of the highest generation count; the pool is complete when there are
    `resource_slice_count` of them."""

    name: str = ""
    generation: int = 0
    resource_slice_count: int = 0


class ResourceSliceSpec(FrozenStruct, frozen=True):
    """One of `node_name`, `node_selector`, `all_nodes` and `per_device_node_selection` is set."""

    driver: str = ""
    pool: ResourcePool = field(default_factory=ResourcePool)
    node_name: str | None = None
    node_selector: NodeSelector | None = None
    all_nodes: bool | None = None
    per_device_node_selection: bool | None = None
    devices: tuple[SliceDevice, ...] = ()
    shared_counters: tuple[CounterSet, ...] = ()


class ResourceSlice(Object):
    spec: ResourceSliceSpec = field(default_factory=ResourceSliceSpec)


class DeviceTaintSelector(FrozenStruct, frozen=True):
    """What is not set selects everything."""

    driver: str | None = None
    pool: str | None = None
    device: str | None = None

    def selects(self, device: DeviceID) -> bool:
        return (
            (self.driver is None or self.driver == device.driver)
            and (self.pool is None or self.pool == device.pool)
            and (self.device is None or self.device == device.device)
        )


class DeviceTaintRuleSpec(FrozenStruct, frozen=True):
    """Without a selector the rule selects no device."""

    device_selector: DeviceTaintSelector | None = None
    taint: DeviceTaint = field(default_factory=DeviceTaint)


class DeviceTaintRuleStatus(FrozenStruct, frozen=True):
    conditions: tuple[Condition, ...] = ()


class DeviceTaintRule(Object):
    """A taint that an administrator adds to devices."""

    spec: DeviceTaintRuleSpec = field(default_factory=DeviceTaintRuleSpec)
    status: DeviceTaintRuleStatus = field(default_factory=DeviceTaintRuleStatus)
