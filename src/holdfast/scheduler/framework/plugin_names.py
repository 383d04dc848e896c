"""Names by which the framework itself refers to plugins and filters.

Some features are more than a plugin: a plugin of this name switches them on for its profile.
"""

RESERVATION = "Reservation"
"""With it pods allocate from reservations."""
DYNAMIC_RESERVATION = "DynamicReservation"
"""With it pods that bring a template get a reservation of their own."""
COSCHEDULING = "Coscheduling"
"""With it, at `permit`, the pods of a job are placed together or not at all."""
PREEMPTION = "DefaultPreemption"
"""Its `post_filter` is part of the action `preempt`."""
NAMED_AT = {
    COSCHEDULING: frozenset(("preEnqueue", "preFilter", "postFilter", "reserve", "permit", "postBind")),
}
"""Points at which a file may name a plugin, though its methods do nothing there."""

NODE_AFFINITY = "NodeAffinity"
"""The plugin of node selectors and node affinity, which pins a DaemonSet's pod to one node."""
NODE_RESOURCES_FIT = "NodeResourcesFit"
"""The plugin that compares requests with free capacity."""
STARVATION_FILTER = "reserve"
"""The filter of the reserve action, which keeps other pods off nodes with starvation holds."""
