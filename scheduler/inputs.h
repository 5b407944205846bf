// From the job's input paths to items with headers.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "io/format.h"
#include "scheduler/job.h"
#include "scheduler/plan.h"

namespace tilery {

// Lists what the job's input means, sorted by bytes, each path once. A folder is read flat, "**"
// recursively and not through links to folders; links to files are followed; hidden and system
// files
// (".DS_Store", "Thumbs.db", "._*") and our own temporaries are ignored, as is all below a folder
// named
// ".tilery", below `work`, and every path for which `is_output` holds. In a folder or glob, files
// whose extension no format knows are still inputs only if a glob names them. Error(kUsage) naming
// the pattern if one matches nothing; a plain path that is missing is Error(kUsage) too.
std::vector<std::string> ListInputs(const Job& job,
                                    const std::function<bool(const std::string&)>& is_output);

struct InputHeader {
  std::string path;
  FileStamp stamp;
  Header header;
  std::string error;                // why it can't be read ("" = it can): its item is refused
  std::vector<std::string> losses;  // what `output_format` would lose
  SparseGrid grid;                  // of an OpenVDB file; its shape is found by FindTilesOfGrids
  std::string grid_type;            // of its values: "vec3s"
  FileStamp
      identity;  // what the item's key holds. ReadHeaders sets it to `stamp`; who knows that only
                 // times or inode have changed since, by content hash, puts the first stamp here
};

// `grids`: labels or names of those to take of OpenVDB files; empty: the only one that holds
// numbers.
// Reads all headers with `threads` threads, order kept; `output_format` "" means that of the
// input's own extension. `known(path, stamp)` may answer from a cache (nullptr: read it), from any
// of the threads.
std::vector<InputHeader> ReadHeaders(
    const std::vector<std::string>& paths, const std::optional<RawLayout>& raw,
    const std::string& output_format, int threads,
    const std::function<const Header*(const std::string&, const FileStamp&)>& known,
    const std::vector<std::string>& grids = {});

// Expands {stem} {name} {ext} {reldir} {index} and, for folders, appends {reldir}/{stem}{ext}.
// `root` is the folder that reldir counts from. Error(kUsage) for an unknown field, naming the
// nearest.
std::string ExpandOutput(const std::string& output_template, const std::string& input,
                         const std::string& root, int64_t index, const std::string& extension);

// The output of every input, by the job's template. Where a pattern of the job's inputs has the
// number of a frame (####), a run of # in the name of the template is that frame's; {ext} is the
// input's own extension and {reldir} counts from the folder or the fixed part of the glob that
// listed the input.
std::vector<std::string> ExpandOutputs(const Job& job, const std::vector<std::string>& inputs);

// Error(kUsage) naming both if an output exists and is the same file as an input (also by a link).
void CheckOutputsAreNoInputs(const std::vector<InputHeader>& inputs,
                             const std::vector<std::string>& outputs);

}  // namespace tilery
