// The kinds of objects that have an address and can be explained, by the name of their view.

const NAMES = {
  nodes: ["Node", false],
  reservations: ["Reservation", false],
  queues: ["Queue", false],
  pods: ["Pod", true],
  podgroups: ["PodGroup", true],
  deployments: ["Deployment", true],
  statefulsets: ["StatefulSet", true],
  daemonsets: ["DaemonSet", true],
  replicasets: ["ReplicaSet", true],
  jobs: ["Job", true],
  cronjobs: ["CronJob", true],
  persistentvolumeclaims: ["PersistentVolumeClaim", true],
  resourceclaims: ["ResourceClaim", true],
  podmigrationjobs: ["PodMigrationJob", false],
  reservationschedules: ["ReservationSchedule", false],
};

/** {kind, namespaced}; `kind` as `holdfast explain` takes it. */
export const KINDS = Object.fromEntries(Object.entries(NAMES).map(([view, [kind, namespaced]]) => [view, { kind: kind.toLowerCase(), namespaced }]));
const VIEWS = Object.fromEntries(Object.entries(NAMES).map(([view, [kind]]) => [kind, view]));

/** The view and path of an object, for an address; null if its kind has none. */
export function targetOf(kind, namespace, name) {
  const view = VIEWS[kind];
  return view ? [view, KINDS[view].namespaced ? [namespace, name] : [name]] : null;
}
