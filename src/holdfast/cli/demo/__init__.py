"""`holdfast demo`: what Holdfast does, shown on a cluster over HTTP, with checks.

command          options, the order of events, and what to type next
chapters         the chapters, in the order in which they are shown
stage            what chapters use: commands that are printed and carried out, checks, cleanup
site             the nodes that chapters use, and amounts relative to their size
objects          the manifests
local_cluster    `holdfast up` as a process, for a demo without a kubeconfig
"""
