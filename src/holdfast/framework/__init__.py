"""The plugin protocol, the scheduling cycle, the queue and profiles. May import `core` and `api`.

interface   what a plugin is: the plugin author's manual
registry    plugins by name, ours and third parties'
config      KubeSchedulerConfiguration
profile     a scheduler name with its plugins, ready to use
column      mask and scores of one pod class over all nodes, kept up to date
diagnosis   why no node will do, in kube-scheduler's words
queue       pods waiting for their turn, their back-off, or a change that helps
cycle       one pod from the queue to a decision
"""
