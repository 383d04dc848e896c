"""Whole lives of clusters, made from a seed, that mix features in random combinations.

life        a life from a seed: which themes it mixes, its configuration
making      documents under construction, and what themes draw from
traits      what single pods (and templates of reservations) may be like
parts       nodes, devices, CPUs, volumes, queues: what a theme needs to be there
device_claims  devices by claim, added to a life
calendars   reservations with a start, and schedules, added to a life
actors      pods, gangs, reservations, migrations
edits       what is done to objects meanwhile
playing     a life played in `simulate` with the capacity audit; what went wrong
shrinking   a life that goes wrong, made small
soak        many lives by hand: `make soak`
"""
