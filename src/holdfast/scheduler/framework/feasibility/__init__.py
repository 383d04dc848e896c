"""Which nodes are feasible for a class of pods, and how they score: a cache of one column per class.

kube-scheduler runs its filters and scores on every node for every pod. Pods of one class (`PodClass`:
equal in everything a plugin may read) get the same answers, so here plugins are asked once per class
and answer with formulas over node rows. Their results are kept in a *column*, one cell per row of the
node table; binding a pod changes one row, and only that row is computed again.

A column is made of these parts. `Epoch` (see `scheduler.cluster.epoch`) has the logs and counters that
tell which of them are out of date:

| part        | what is kept                                      | computed again when
| ----------- | ------------------------------------------------- | -----------------------------------
| answers     | filters, scores, rejections of the plugins; the   | the `version` of an answer differs
|             | `constant` score of all rows (`compiled_class`)   | (a `Settled` one is compared only
|             |                                                   | when `Epoch.objects` has moved), or
|             |                                                   | a plugin failed in an earlier round
| node part   | per row: node filters pass, sum of node scores,   | the row is in `Epoch.nodes`
|             | raw node scores to be normalised (`rows`)         |
| usage part  | per row: usage filters pass too, sum of usage     | the row is in `Epoch.usage`, or its
|             | scores, raw usage scores to be normalised (`rows`)| node part was computed again
| normalised  | per row: normalised scores, weighted              | the row changed; all rows if the
|             | (`normalized_scores`)                             | measure (as the highest raw score of
|             |                                                   | feasible rows) differs, and at every
|             |                                                   | change if there is a topology part
| topology    | per row: its key, the topology values and counts  | keys of rows whose facets changed;
|             | it has; per key: topology filters pass, sum of    | filters and scores of all keys (they
|             | topology scores (`topology_keys`, `rows`)         | are few) whenever a row changed
| diagnosis   | per row: the plugin that rejects it, and why      | on demand: rows that changed; all
|             | (`framework.diagnosis`)                           | rows if there are topology filters
| corrections | the same for nodes with nominated pods, where     | on demand, if the answers, the queue
|             | rows depend on each other (`framework.dry_run`)   | or `Epoch.of_feasibility` differ
| memo        | usage part by capacity vector, for nodes that are | a new answer; cleared when full,
|             | alike (`RowMemo`)                                 | given up where nodes are not alike

`refresh` asks plugins again if their answers are out of date. Then it follows one log after the other:
rows in `Epoch.nodes` (node part, usage part, normalised), rows in `Epoch.usage` (usage part,
normalised), and last the topology part: keys, filters, the normalised scores of all rows, scores (they
count feasible nodes). All rows are computed again instead

* after a new answer and after a change of the node table's size;
* after any change of a node, if the class has a topology part;
* if a log no longer reaches back to where the column read it last, or has more new entries than are
  worth following: a quarter of all rows in `Epoch.nodes`, as many as all rows in `Epoch.usage`.

The total of a row is `base + by_key[key]`, where `base` is the sum of the node, usage and normalised
scores; `constant` is the same for all rows and left out. A row that is not feasible is at or below
INFEASIBLE / 2. The best row is the one with the highest total, of several the one with the lowest
number. A node gets the lowest number that is free, so that rows are in the order in which nodes were
first seen until one is deleted.

Three types of columns: `ReservationColumn` for classes that match reservations, where a row with such a
reservation is evaluated as if what is left of the reservation were free, once per reservation
(`reservation_scores` picks one; the matched ones follow `Epoch.reservations` and `Epoch.owners`);
`VolumeColumn` for other classes with volumes, unless a plugin scores volumes: the column of the same
class without volumes, narrowed to the rows where its volumes can be, and a complete column of its own
where that changes scores; `ClassColumn` for all others. `ColumnStore` (`node_search`) makes them, and
drops those used longest ago, roughly, above a limit of memory, in which the complete column of a
`VolumeColumn` does not count; `NodeSearch`, beside it, takes the best row of one for a pod.

What may be read when:

* `ColumnStore.column` hands out columns: of the type that the class needs now, up to date, with plugins
  asked again that failed in an earlier round, and `rejected` if one fails now. `refresh` brings the
  parts up to date and does nothing else, so a column is kept for one scheduling attempt, as a dry run
  does, and no longer.
* Nothing may be refreshed inside `Ledger.peek`: it takes the rows it touched off `Epoch.usage` again.
* Inside `Ledger.transaction` a column may be refreshed, as dry runs do: rows that are put back are in
  `Epoch.usage` again.
* Formulas are also computed for rows that belong to no node any more. Their result is not used.
* A `View` is valid until the next change of the ledger or of a node, and is not kept. A `KeyView` shows
  keys, not rows, and is kept until there is a new key.
* A score must not depend on which rows are feasible, except through `Score.normalize` and, for topology
  scores, `KeyView.feasible`.
* One row and many rows are computed by the same formula: `One` answers with plain numbers, `Some` and
  `All` with arrays. `tests/reference/test_agreement.py` compares columns that are kept up
  to date row by row with a reference that evaluates every node.
"""
