"""Devices by claim (DRA): what drivers publish, what is in use, and which devices a claim gets.

    catalogue = DeviceCatalogue(nodes)            slices, classes, taint rules: `put_…`, `remove_…`
    use = DeviceUse(catalogue.table)              allocated claims: `add`, `remove`, `without`
    allocator = ClaimsAllocator(catalogue, nodes)

    request = allocator.request(specs)            a pod's unallocated claims; shared by equal specs
    allocator.feasible(request, rows, use)        which nodes, with what score: ClaimsFeasibility
    allocator.allocate(request, row, use, names)  ClaimsAllocation, or ClaimsRefusal with the reason
    explain(allocator, request, row, use)         why each device of a node is not used

Rules for callers:

* Every change of a slice or rule returns the rows of the node table whose answers may have changed
  (None: all); `catalogue.rows_of(devices)` does so for devices that are allocated or released.
  `catalogue.node_changed(row)` is to be called when a node object is added, changed or removed. With a
  class, `catalogue.class_version` changes; requests made before are outdated then.
* `request.missing_class` is to be checked first. `ClaimsFeasibility.fatal` marks rows where
  allocation is given up with an error (a selector that fails, say): the row is infeasible, and
  `allocate` on it has the message.
* `use.without(keys)` is the use without some claims: victims of a preemption, or claims with which
  reservations hold devices for the pod. `allocate(…, prefer=devices)` takes those devices first,
  `only=devices` no others.
* Everything is deterministic: pools, slices and devices are tried in order, ids of shares are derived
  from the claim unless `share_id` is given.

Modules, lowest first:

    device_table      devices as rows, their properties as codes
    pools             the slices a node sees, as pools
    catalogue         slices, classes and taint rules
    device_use        devices in use by claims
    capacity          what a request consumes of a device that can be shared
    claims_request    a pod's claims, compiled
    selector_columns  selectors, tolerations, attributes and demands per kind of device
    request_columns   the columns of one request
    constraints       constraints between devices of a claim
    search            the search for devices on one node
    allocation        what is written to the status of claims
    allocator         feasible nodes, and the allocation on one
    explanation       why devices are not used
    pod_claims        the claims that pods name, as part of their class
    extended_resources  claims in place of extended resources
    class_claims      what is to be allocated for a class of pods on each node
    held_devices      claims with which reservations hold devices
    claim_state       claims, and what is in flight for them
    held_rest         what reservations hold and no other claim uses
    claims_in_use     the devices that claims use, and the pods that consume them
    claim_feasibility  which devices a class of pods can get on each node
    claim_reservations  reserving claims for pods
    holder_claims     what is written about claims, and the claims of reservations
    claim_handlers    event handlers of claims
    claim_manager     the entry point of the scheduler: all of it, kept in line with objects and pods
    device_counts     devices of each driver on each node, for tables and charts

The CEL of selectors is in `machinery.schema.device_selectors`.
"""

from holdfast.scheduler.managers.claims.allocation import (
    ClaimName,
    ClaimsAllocation,
    ClaimsRefusal,
    derived_share_id,
)
from holdfast.scheduler.managers.claims.allocator import (
    ClaimsAllocator,
    ClaimsFeasibility,
    ClaimsVerdict,
)
from holdfast.scheduler.managers.claims.catalogue import DeviceCatalogue
from holdfast.scheduler.managers.claims.claims_request import ClaimsRequest
from holdfast.scheduler.managers.claims.device_use import DeviceUse, UseSnapshot
from holdfast.scheduler.managers.claims.explanation import (
    DeviceReason,
    DevicesExplained,
    PoolReason,
    explain,
)

__all__ = [
    "ClaimName",
    "ClaimsAllocation",
    "ClaimsAllocator",
    "ClaimsFeasibility",
    "ClaimsRefusal",
    "ClaimsRequest",
    "ClaimsVerdict",
    "DeviceCatalogue",
    "DeviceReason",
    "DeviceUse",
    "DevicesExplained",
    "PoolReason",
    "UseSnapshot",
    "derived_share_id",
    "explain",
]
