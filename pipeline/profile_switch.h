// For measuring what recording costs: profiles can be made to record nothing.
#pragma once

namespace tilery {

// For all profiles of this process; on from the start. Only to be called while no scope is open and
// nothing is under way.
void RecordProfiles(bool on);
// Whether they record: devices ask before they look at the clock for one. Thread-safe.
bool ProfilesRecord();

}  // namespace tilery
