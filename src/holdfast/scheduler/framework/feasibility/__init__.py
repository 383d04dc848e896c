"""Which nodes are feasible for a class of pods, and how they score: a cache of one column per class.

kube-scheduler runs its filters and scores on every node for every pod. Pods of one class (`PodClass`:
equal in everything a plugin may read) get the same answers, so here plugins are asked once per class
and answer with formulas over node rows. Their results are kept in a *column*, one cell per row of the
node table; binding a pod changes one row, and only that row is computed again.

Words of this package:

* *answers*: what the plugins return when they are asked about a class: filters and scores, each with a
  `Scope` (node, usage, topology) and a `version`, or a `Rejected`, which makes every node infeasible. A
  `Settled` version moves only when `Epoch.objects` does, so it is compared only then.
* *facet*: a small number that each row has for one class, such as its zone, or how many matching pods
  are in its rack; all that topology filters and scores read. Rows with equal facets have one *key*.
* *measure*: what a normalisation must know of the raw scores of all feasible rows, for example the
  highest of them.
* *capacity vector*: the claimed and allocatable amounts of a row.
* *local*: a column without topology filters (`is_local`), so that the feasibility of a row depends on
  that row alone.

A column is made of these parts. `Epoch` (see `scheduler.cluster.epoch`) has the logs and counters that
tell which of them are out of date:

| part        | what is kept                                      | computed again when
| ----------- | ------------------------------------------------- | -----------------------------------
| answers     | filters, scores, a rejection of the whole class;  | a `version` differs; a formula
|             | the `constant` score of all rows                  | raised; a plugin failed in an
|             | (`compiled_class`)                                | earlier round
| node part   | per row: it has a node, `Filter.only` names it,   | the row is in `Epoch.nodes`
|             | node filters pass; sum of node scores (`rows`)    |
| usage part  | per row: usage filters pass too, sum of usage     | the row is in `Epoch.usage`, or its
|             | scores (`rows`)                                   | node part was computed again
| normalised  | per row: raw scores of both scopes, normalised    | raw: with their part; scores: the
|             | and weighted scores (`normalized_scores`)         | row changed; of all rows if the
|             |                                                   | measure differs, and at every change
|             |                                                   | if there is a topology part
| topology    | per row: its key; per key: topology filters pass, | keys of rows whose facets changed;
|             | sum of topology scores (`topology_keys`, `rows`)  | filters and scores of all keys (they
|             |                                                   | are few) whenever a row changed
| diagnosis   | per row: the plugin that rejects it, and why; in  | on demand: rows that changed; all
|             | a local `ClassColumn` with nominated pods added   | rows if many did or there are
|             | (`framework.diagnosis`)                           | topology filters
| corrections | the rejections of rows with nominated pods, where | on demand, if the answers, the pod's
|             | the diagnosis is without them                     | Queue or `Epoch.of_feasibility`
|             | (`framework.dry_run`)                             | differ; see `shares_corrections`
| memo        | usage parts by capacity vector and `kind`, where  | the answers are new; cleared when
|             | nothing else matters to any of more than 3 usage  | full, given up where rows differ too
|             | filters and scores (`RowMemo`)                    | much

`refresh` asks plugins again if their answers are out of date. Then it follows one log after the other:
rows in `Epoch.nodes` (node part, usage part, normalised), rows in `Epoch.usage` (usage part,
normalised), and last the topology part: keys, filters, the normalised scores of all rows, scores (they
count feasible nodes). If neither log has moved it returns immediately, so code that changes a facet
also logs a row. Up to 6 rows (`_FEW`) are computed one by one, more as arrays. Instead, all rows are
computed again

* whenever plugins were asked again, and after a change of the node table's size;
* after any change of a node, if the class has a topology part;
* if a log no longer reaches back to where the column read it last, or has more new entries than are
  worth following: a quarter of all rows in `Epoch.nodes`, as many as all rows in `Epoch.usage`.

If a formula of an in-tree plugin raises, `recover` asks all plugins again within the same `refresh` and
computes all rows with formulas that report the plugin that fails (`framework.guarded`).

The total of a row is `base + by_key[key]`, where `base` is the sum of the node, usage and normalised
scores, and of the score of the row's nominated reservation; `constant` is the same for all rows and
left out. A row that is not feasible is at or below INFEASIBLE / 2. The best row is the one with the
highest total, of several the one with the lowest number. A node gets the lowest number that is free, so
that rows are in the order in which nodes were first seen until one is deleted.

Three types of columns; the header of each module has the details:

* `ReservationColumn` for classes that match reservations or have a reservation affinity: a row with a
  matched reservation is evaluated as if what is left of the reservation were free.
* `VolumeColumn` for other classes with volumes, unless a plugin scores volumes: the column of the same
  class without volumes, narrowed to the rows where its volumes can be.
* `ClassColumn` for all others.

`ColumnStore` (`node_search`) makes them, and drops those of classes that are gone and, above a limit of
memory, roughly those used longest ago. `NodeSearch`, beside it, finds a pod's row: its nominated or
pinned node, else the best row of the column that is feasible with nominated pods added.

What may be read when:

* `ColumnStore.column` hands out columns: of the type that the class needs now, up to date, with plugins
  asked again that failed in an earlier round, and `rejected` if one fails now (in a score: if more than
  one node is feasible). `refresh` brings the parts up to date and does nothing else, so a column is
  kept for one scheduling attempt, as a `DryRun` does, and no longer.
* Nothing may be refreshed inside `Ledger.peek`: it takes the rows it touched off `Epoch.usage` again.
* Inside `Ledger.transaction` a column may be refreshed, as a `DryRun` does: rows that are put back are
  in `Epoch.usage` again.
* Formulas are also computed for rows without a node: it is deleted, or not seen yet. Their result is
  not used.
* A `View` is valid until the next change of the ledger or of a node, and is not kept. A `KeyView` shows
  keys, not rows, and is kept until there is a new key or all keys are computed again.
* A score must not depend on which rows are feasible, except through `Score.normalize` and, for topology
  scores, `KeyView.feasible`.
* One row and many rows get the same result. Mostly one formula serves both: `One` answers with plain
  numbers (to third-party plugins with arrays of one cell), `Some` and `All` with arrays. Where speed
  needs it there are two formulas side by side, as in NodeResourcesFit, LimitAware, `AllocatingOne` and
  `AllocatingSome`, `Normalized.update_row` and `measure_again`; a change of one is a change of both.
  `tests/reference/test_agreement.py` compares columns that are kept up to date row by row with a
  reference that evaluates every node, and `tests/scheduler/framework/feasibility` with new columns.
"""
