"""Recordings: what scheduling reads of a cluster, as it changes, in compressed files of bounded size.

    segments    the files: written so that a crash loses seconds, read whatever state they are in
    recorder    lists and watches a cluster into segments
    lives       what became of each object in a recording: arrivals, starts, ends, changes

May import `snapshot` and the layers below. A recording has no Secrets, and of pods no environment,
commands or arguments.
"""
