"""Coscheduling: the pods of a job are placed together or not at all.

The work is done in `holdfast.framework.gangs`, for all members at once rather than pod by pod; the
plugin says for which profiles. Where a file lets it sort the queue, the order is that of PrioritySort,
which keeps jobs together as it is.
"""

from holdfast.core.changes import Change
from holdfast.framework.points import COSCHEDULING
from holdfast.plugins.queue_sort import PrioritySort


class Coscheduling(PrioritySort):
    name = COSCHEDULING
    wakes_on = Change.NONE
