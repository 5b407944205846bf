// Patterns over file names: * and ? within a name, [abc] classes, ** over folders; #### is the
// number of a frame: at least four digits, more only without zeros in front.
#pragma once

#include <functional>
#include <optional>
#include <string>

namespace tilery {

bool HasWildcards(const std::string& component);
// Whether a name matches one component's pattern. A leading dot must be matched by a dot.
bool MatchesName(const std::string& pattern, const std::string& name);

// The digits that stand for the last run of # of a component's pattern in a name that it matches;
// nullopt if it does not, or has none.
std::optional<std::string> FrameIn(const std::string& pattern, const std::string& name);

// Calls `found` for every file that the absolute pattern matches, in no particular order; links to
// files are followed, also dangling ones are reported. A component that exists as it is written is
// taken literally, so that "[" in the name of a folder does no harm. "**" stands for any number of
// folders; it enters neither links nor hidden folders. `enter(folder)` may forbid a folder.
void WalkGlob(const std::string& pattern, const std::function<bool(const std::string&)>& enter,
              const std::function<void(const std::string& path)>& found);

// The folder below which a pattern looks: up to its first component with wildcards; a folder
// itself; the parent of a file.
std::string PatternRoot(const std::string& pattern);

}  // namespace tilery
