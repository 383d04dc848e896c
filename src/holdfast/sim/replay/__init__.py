"""Replays a recording: what arrived in the cluster arrives again, and the scheduler decides anew.

    arrivals       the lives of recorded objects to the actions of a scenario
    replay         the simulation of these, under one configuration
    as_recorded    the figures of what really happened, for comparison

Pods come from the recording and run as long as they did, from their new start. Controllers create none.
"""
