"""Finds nodes for waiting pods, in the queue's order, until none is left to try."""

from holdfast.actions.round import Action, Round


class Allocate(Action):
    name = "allocate"

    def run(self, round_: Round) -> None:
        queue, cycle, profiles, now = round_.queue, round_.cycle, round_.profiles, round_.now
        while round_.pods_left > 0 and (pod := queue.pop(now)) is not None:
            if pod.job is not None:
                round_.pods_left -= round_.gangs.schedule(pod, now)
                continue
            round_.pods_left -= 1
            cycle.schedule(profiles[pod.scheduler], pod, now)
