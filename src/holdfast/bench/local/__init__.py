"""Measures pods bound per second in a local cluster, from creation to the watch event with the node.

in_process  pods created in the cluster's own process
over_http   pods created over HTTP against `holdfast up`
command     runs both; a table or JSON
"""
