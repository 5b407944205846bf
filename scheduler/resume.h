// What earlier runs left that is still good: published outputs, bricks in the ledger, orphan
// bricks.
#pragma once

#include <string>

#include "scheduler/coordinator.h"
#include "scheduler/job.h"
#include "scheduler/ledger.h"
#include "scheduler/plan.h"

namespace tilery {

// Checks the outputs of all items against ledger and disk, and applies `existing` (refuse:
// Error(kUsage) with count, three names and the ways out, before anything is written; skip: item
// unchanged; replace). An output whose record has this item's key and whose stamp equals the
// recorded one is unchanged; if size is equal but times differ its content hash decides. Redone: an
// output that is missing, shorter than recorded, or no longer decodes; one of ours made under
// another key; a claimed path without a record. One that is whole but differs from its record was
// edited, and is treated like a stranger's file. Bricks of the items that are open: those of the
// ledger whose file has its size, and orphans in `scratch` whose key and checksums are right, which
// are recorded now. Claims the outputs of open items and commits.
Resume PlanResume(const Plan& plan, Existing existing, const std::string& numerics_key,
                  const std::string& scratch, Ledger& ledger);

// Key that goes into records: item key and numerics key in one.
std::string OutputKey(const std::string& item_key, const std::string& numerics_key);

// Called while no worker is at work. Removes what dead epochs left: bricks that no unit of this
// plan wants, stage files, lists of bricks; and all temporaries of this work folder's units in
// scratch and beside the outputs. `finished`: after the run, so this epoch's leftovers are dead,
// too.
void SweepDead(const Plan& plan, const std::string& numerics_key, const std::string& scratch,
               Ledger& ledger, bool finished = false);

}  // namespace tilery
