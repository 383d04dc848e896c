"""The plugin protocol, the scheduling cycle, the queue and profiles. May import `core` and `api`.

interface     what a plugin is: the plugin author's manual
handle        what a plugin may read of the cluster; `cluster_plugin` is for our own that need more
registry      plugins by name, ours and third parties'
config        KubeSchedulerConfiguration
profile       a scheduler name with its plugins, ready to use
queue         pods waiting for their turn, their back-off, or a change that helps
cycle         one pod from the queue to a decision
trial         whether a pod would fit a row just now

Mask and scores of one pod class over all nodes, kept up to date (`columns` has them all):

column        of most classes
narrowed      of one with volumes
owned         of one whose pods may draw on reservations; `drawing` says what those are worth
normalized    the scores of one plugin that have to be normalised
keyed         rows told apart by what topology plugins see of them
diagnosis     why no node will do, in kube-scheduler's words; `counting`, in Koordinator's
barrier       nodes held for starving jobs

Several pods, and room for those to come:

gangs         a job's members from the queue to a decision; `statement` keeps or gives back their places
reserving     which node is held for which task; `resource_order` says how well they go together
clearing      which reservations would have to go for a pod to fit
provisioning  pods that bring a reservation template
"""
