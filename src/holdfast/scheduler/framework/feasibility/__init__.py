"""Which nodes are feasible for a class of pods, and how they score: a cache of one column per class.

kube-scheduler runs its filters and scores on every node for every pod. Pods of one class (`PodClass`:
equal in everything a plugin may read) get the same answers, so here plugins are asked once per class
and answer with formulas over node rows. Their results are kept in a *column*, one cell per row of the
node table; binding a pod changes one row, and only that row is computed again.

A column is made of five parts. `Epoch` (see `scheduler.cluster.epoch`) tells which is out of date:

| part       | per class                                          | computed again when
| ---------- | -------------------------------------------------- | ----------------------------------
| answers    | filters, scores, rejections of the plugins         | the `version` of an answer differs;
|            | (`compiled_class`)                                 | `Settled` ones: `Epoch.objects` too
| node part  | per row: node filters pass, sum of node scores     | the row is in `Epoch.nodes`
|            | (`rows`)                                           |
| usage part | per row: usage filters pass too, sum of usage      | the row is in `Epoch.usage`
|            | scores, raw scores to be normalised (`rows`)       |
| normalised | per row: normalised scores, weighted               | the measure, say the highest raw
|            | (`normalized_scores`)                              | score of feasible rows, differs
| topology   | per row: its key, the topology values and counts   | a facet of the row changed; then the
|            | it has; per key: topology filters pass, sum of     | few keys there are are all computed
|            | topology scores (`topology_keys`, `rows`)          | again

`refresh` brings them up to date in this order, because each part depends on those above it. A new
answer, another size of the node table, or more changed rows than are worth following, means that all
rows are computed again.

The total of a row is `base + by_key[key]`, where `base` is the sum of the node, usage and normalised
scores; a row that is not feasible is at or below INFEASIBLE / 2. The best row is the one with the
highest total, of several the one with the lowest number: rows are numbered in the order in which nodes
were first seen.

Three kinds of columns: `ClassColumn`; `VolumeColumn` for classes with volumes, which is the column of
the same class without volumes narrowed to the rows where its volumes can be; `ReservationColumn` for
classes that match reservations, where a row with such a reservation is evaluated as if what is left of
the reservation were free, once per reservation (`reservation_scores` picks one). `column_store` makes
them and drops those used longest ago.

What may be read when:

* Only `ColumnStore.column` hands out columns, and it hands them out up to date. Whoever keeps one calls
  `refresh` before the next question, if pods or objects may have changed in between.
* Nothing may be refreshed inside `Ledger.peek`: it takes the rows it touched off `Epoch.usage` again.
* Formulas are also computed for rows that belong to no node any more. Their result is not used.
* A `View` is valid until the next change of the ledger or of a node; nobody keeps one.
* A score must not depend on which rows are feasible, except through `Score.normalize` and, for topology
  scores, `KeyView.feasible`.
* One row and many rows are computed by the same formula: `One` answers with plain numbers, `Some` and
  `All` with arrays. `tests/reference/test_agreement.py` compares columns that are kept up
  to date row by row with a reference that evaluates every node.
"""
