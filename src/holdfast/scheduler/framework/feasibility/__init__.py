"""Which nodes are feasible for a class of pods, and how they score: a cache of one column per class.

kube-scheduler runs its filters and scores on every node for every pod. Pods of one class (`PodClass`:
equal in everything a plugin may read) get the same answers, so here plugins are asked once per class
and answer with formulas over node rows. Their results are kept in a *column*, one cell per row of the
node table; binding a pod changes one row, and only that row is computed again.

A column is made of five parts. `Epoch` (see `scheduler.cluster.epoch`) tells which is out of date:

| part       | what is kept                                       | computed again when
| ---------- | -------------------------------------------------- | ----------------------------------
| answers    | filters, scores, rejections of the plugins         | the `version` of an answer differs
|            | (`compiled_class`)                                 | (a `Settled` one is compared only
|            |                                                    | when `Epoch.objects` has moved)
| node part  | per row: node filters pass, sum of node scores     | the row is in `Epoch.nodes`
|            | (`rows`)                                           |
| usage part | per row: usage filters pass too, sum of usage      | the row is in `Epoch.usage`, or its
|            | scores, raw scores to be normalised (`rows`)       | node part was computed again
| topology   | per row: its key, the topology values and counts   | keys of rows whose facets changed;
|            | it has; per key: topology filters pass, sum of     | filters and scores of all keys (they
|            | topology scores (`topology_keys`, `rows`)          | are few) whenever a row changed
| normalised | per row: normalised scores, weighted               | the row changed; all rows if the
|            | (`normalized_scores`)                              | measure, as the highest raw score of
|            |                                                    | feasible rows, differs

`refresh` brings them up to date in this order; only topology scores come last, as they count feasible
nodes. All rows are computed again after a new answer, after a change of the node table's size, after
any change of a node if the class has topology keys, and when more rows changed than are worth following
one by one (a quarter of all rows for nodes).

The total of a row is `base + by_key[key]`, where `base` is the sum of the node, usage and normalised
scores; a row that is not feasible is at or below INFEASIBLE / 2. The best row is the one with the
highest total, of several the one with the lowest number. A node gets the lowest number that is free, so
that rows are in the order in which nodes were first seen until one is deleted.

Three kinds of columns: `ReservationColumn` for classes that match reservations, where a row with such a
reservation is evaluated as if what is left of the reservation were free, once per reservation
(`reservation_scores` picks one; the matched ones follow `Epoch.reservations` and `Epoch.owners`);
`VolumeColumn` for other classes with volumes, unless a plugin scores volumes: the column of the same
class without volumes, narrowed to the rows where its volumes can be; `ClassColumn` for all others.
`ColumnStore` (`node_search`) makes them, and drops those used longest ago, roughly, above a limit of
memory; `NodeSearch`, beside it, takes the best row of one for a pod.

What may be read when:

* Only `ColumnStore.column` hands out columns, and it hands them out up to date. A caller that keeps one
calls `refresh` before it uses it again, if pods or objects may have changed in between.
* Nothing may be refreshed inside `Ledger.peek`: it takes the rows it touched off `Epoch.usage` again.
* Formulas are also computed for rows that belong to no node any more. Their result is not used.
* A `View` is valid until the next change of the ledger or of a node, and is not kept. A `KeyView` shows
  keys, not rows, and is kept until there is a new key.
* Inside `Ledger.transaction` a column may be refreshed, as dry runs do: rows that are put back are in
  `Epoch.usage` again.
* A score must not depend on which rows are feasible, except through `Score.normalize` and, for topology
  scores, `KeyView.feasible`.
* One row and many rows are computed by the same formula: `One` answers with plain numbers, `Some` and
  `All` with arrays. `tests/reference/test_agreement.py` compares columns that are kept up
  to date row by row with a reference that evaluates every node.
"""
