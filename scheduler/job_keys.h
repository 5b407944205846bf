// Every key of a job, in one table: it drives the check of job files, the flags, the help text and
// the JSON schema (configs/job.schema.json).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tilery {

enum class KeyType : uint8_t {
  kWord,      // one of `words`
  kText,      // any text
  kTexts,     // one or several
  kPath,      // made absolute; ~ and ${VAR} expand
  kPaths,     // one or several
  kTemplate,  // a path with {fields}
  kInteger,   // >= least, or one of `words`
  kIntegers,  // one, or one per axis, each >= least
  kNumber,    // finite
  kNumbers,   // one, or a list
  kRange,     // [low, high], low < high
  kScale,     // integer or "p/q", one or one per axis
  kMemory,    // bytes, or with KiB, MiB, GiB, TiB
  kExtent,    // voxels or "25%", one or one per axis, or one of `words`
  kShare,     // a count, or a percentage
  kPost,      // a list of steps
  kBound,     // a number, or text that says bounds by grid
  kList,      // a list that only the loader understands
};

struct JobKey {
  const char* key;  // dotted: "tiling.tile"
  KeyType type;
  const char* words;     // values allowed beside those of the type, separated by blanks
  const char* later;     // values that are not supported yet; "*": the whole key is not
  int64_t least;         // of integers, extents and memory
  const char* flag;      // short flag without dashes, or ""
  const char* standard;  // the default, as shown to people
  const char* help;
};

inline constexpr const char* kWholeKey = "*";

std::span<const JobKey> JobKeys();
const JobKey* FindJobKey(std::string_view key);  // nullptr if unknown
bool IsLater(const JobKey& key);                 // the whole key is not supported yet
std::vector<std::string> SplitWords(const char* words);

// "tiling.tile" for "tile" or "tiling.tile" (no dashes). Error(kUsage) naming the nearest flag.
std::string ResolveFlag(const std::string& name);
// Whether a flag may be followed by several values ("--input a.png b.png").
bool TakesManyValues(const JobKey& key);

std::string JobKeysHelp();  // one or two lines per key, for `tilery run --help`
std::string
JobSchemaText();  // JSON schema (draft 2020-12) of a job file, indented, ends with a newline

}  // namespace tilery
