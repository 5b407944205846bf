#include "scheduler/resume.h"

#include <algorithm>
#include <filesystem>
#include <unordered_map>

#include "io/brick.h"
#include "io/error.h"
#include "io/parallel_for.h"
#include "scheduler/brick_name.h"
#include "scheduler/grid_plan.h"

namespace tilery {
namespace {

constexpr int kThreads = 8;       // files are looked at in parallel: a stat over NFS takes a while
constexpr int64_t kChunk = 4096;  // items whose records are in memory at a time
constexpr int64_t kBandBytes = 16 << 20;

// What stands at an output's path.
enum class Found : uint8_t {
  kNothing,   // or what must be redone
  kSame,      // the recorded file
  kTouched,   // the recorded bytes under another stamp
  kStranger,  // not ours, or edited since
};

// Whether the file can be read to its end.
bool Decodes(const std::string& path, const Header& expected) {
  try {
    std::optional<RawLayout> raw;
    if (expected.format == "raw") {
      raw.emplace();
      raw->dtype = expected.dtype;
      raw->channels = expected.channels;
      raw->shape = expected.shape;
    }
    const auto reader = OpenReader(path, raw);
    const Header& h = reader->header();
    const int64_t row = h.shape[2] * h.channels * static_cast<int64_t>(DTypeSize(h.dtype));
    const int64_t rows = std::clamp<int64_t>(kBandBytes / std::max<int64_t>(row, 1), 1, h.shape[1]);
    std::vector<std::byte> buffer(static_cast<size_t>(rows * row));
    for (int64_t z = 0; z < h.shape[0]; ++z) {
      for (int64_t y = 0; y < h.shape[1]; y += rows) {
        const Box band{{z, y, 0}, {z + 1, std::min(y + rows, h.shape[1]), h.shape[2]}};
        reader->Read(band, DenseView(buffer.data(), h.dtype, h.channels, band.shape(),
                                     Layout::kInterleaved));
      }
    }
    reader->CheckEnd();
    return true;
  } catch (const Error&) {
    return false;
  }
}

Header ExpectedOutput(const Plan& plan, const Item& item) {
  const ItemParams& params = plan.params[static_cast<size_t>(item.params)];
  Header header = params.output;
  header.shape = TileGrid(item.header.shape, params.tiling).output_shape;
  return header;
}

// One byte or two per item: a job may have 100,000.
struct Look {
  Found found = Found::kNothing;
  bool published = false;  // as the ledger has it
  bool same_key = false;
};

Found LookAt(const Plan& plan, const Item& item, const std::optional<OutputRecord>& record,
             std::optional<FileStamp>& stamp) {
  const std::string& path = item.output;
  try {
    stamp = StampOf(path);
  } catch (const Error&) {
    return Found::kNothing;  // what keeps us from looking keeps the unit from writing, which says
                             // so
  }
  if (!stamp) return Found::kNothing;
  if (!record) return Found::kStranger;
  if (!record->published) return Found::kNothing;
  const Published& known = record->file;
  if (*stamp == known.stamp) return Found::kSame;
  if (stamp->size < known.size) return Found::kNothing;
  try {
    if (stamp->size == known.size && HashFile(path) == known.hash) return Found::kTouched;
  } catch (const Error&) {
    return Found::kStranger;  // a folder, or no longer readable: not as we left it
  }
  const GridTask& grids = plan.params[static_cast<size_t>(item.params)].grids;
  const bool whole =
      grids ? GridOutputIsWhole(path, grids.kind) : Decodes(path, ExpectedOutput(plan, item));
  return whole ? Found::kStranger : Found::kNothing;
}

// Looks at all outputs; `touched` gets the records of those whose stamp alone has changed, with the
// new one.
std::vector<Look> LookAtAll(const Plan& plan, const std::string& numerics_key, const Ledger& ledger,
                            std::vector<OutputRecord>& touched) {
  const auto count = static_cast<int64_t>(plan.items.size());
  std::vector<Look> looks(plan.items.size());
  for (int64_t begin = 0; begin < count; begin += kChunk) {
    const int64_t size = std::min(kChunk, count - begin);
    std::vector<std::optional<OutputRecord>> records(static_cast<size_t>(size));
    std::vector<std::optional<FileStamp>> stamps(static_cast<size_t>(size));
    for (int64_t i = 0; i < size; ++i) {
      const Item& item = plan.items[static_cast<size_t>(begin + i)];
      if (item.refused.empty()) records[i] = ledger.FindOutput(item.output);
    }
    ParallelFor(kThreads, size, [&](int64_t i) {
      const Item& item = plan.items[static_cast<size_t>(begin + i)];
      if (item.refused.empty()) looks[begin + i].found = LookAt(plan, item, records[i], stamps[i]);
    });
    for (int64_t i = 0; i < size; ++i) {
      if (!records[i]) continue;
      Look& look = looks[begin + i];
      look.published = records[i]->published;
      look.same_key = records[i]->item_key ==
                      OutputKey(plan.items[static_cast<size_t>(begin + i)].key, numerics_key);
      if (look.found != Found::kTouched || !look.same_key) continue;
      records[i]->file.stamp = *stamps[i];
      touched.push_back(*records[i]);
    }
  }
  return looks;
}

[[noreturn]] void Refuse(const std::vector<const Item*>& strangers) {
  std::string names;
  for (size_t i = 0; i < std::min<size_t>(3, strangers.size()); ++i) {
    names += (i == 0 ? "" : ", ") + Printable(strangers[i]->output);
  }
  if (strangers.size() > 3) names += ", ...";
  const std::string count =
      strangers.size() == 1 ? "1 output exists already and was"
                            : std::to_string(strangers.size()) + " outputs exist already and were";
  throw Error(Fault::kUsage,
              count + " not made by this work folder, or changed since: " + names +
                  ". Name another output.path, remove the files, or say what to do with them: "
                  "output.existing: skip (keep them) or replace (--output.existing replace)");
}

// Bricks on disk by key; of several for one key any may be the good one.
std::unordered_map<std::string, std::vector<std::string>> BricksOnDisk(const std::string& scratch) {
  std::unordered_map<std::string, std::vector<std::string>> found;
  std::error_code failed;
  for (std::filesystem::directory_iterator entry(scratch, failed), end; !failed && entry != end;
       entry.increment(failed)) {
    const std::string name = entry->path().filename().string();
    const auto parsed = ParseScratchName(name);
    if (parsed && parsed->kind == "brick") found[parsed->key].push_back(name);
  }
  // In an order that does not depend on the disk.
  for (auto& [key, files] : found) std::sort(files.begin(), files.end());
  return found;
}

class BrickFinder {
 public:
  BrickFinder(const Plan& plan, const std::string& numerics_key, const std::string& scratch,
              Ledger& ledger)
      : plan_(plan),
        numerics_key_(numerics_key),
        scratch_(scratch),
        ledger_(ledger),
        on_disk_(BricksOnDisk(scratch)) {
    ledger.EachBrick([this](const BrickRecord& brick) { recorded_.emplace(brick.key, brick); });
  }

  void Item(int64_t index, Resume& resume) {
    const tilery::Item& item = plan_.items[static_cast<size_t>(index)];
    if (item.infer_units < 2 || (on_disk_.empty() && recorded_.empty())) return;
    if (item.staged) StageFile(index, resume);
    for (int64_t block = 0; block < item.infer_units; ++block) {
      const std::string key = UnitKey(item.key, numerics_key_, block);
      const auto record = recorded_.find(key);
      const auto files = on_disk_.find(key);
      const int64_t unit = plan_.UnitOf(index, UnitKind::kInfer, block);
      if (record != recorded_.end() && files != on_disk_.end() && Whole(record->second)) {
        resume.bricks.emplace_back(unit, record->second);
        continue;
      }
      std::optional<BrickRecord> adopted;
      if (files != on_disk_.end()) adopted = Adopt(key, files->second);
      if (!adopted) {
        if (record != recorded_.end()) ledger_.ForgetBrick(key);
        continue;
      }
      // A result that was accepted before, under another name, is not accepted again.
      adopted->tiles = record != recorded_.end() ? record->second.tiles : plan_.TilesOf(unit);
      if (record == recorded_.end()) resume.adopted_tiles += adopted->tiles;
      ledger_.RecordBrick(*adopted);
      resume.bricks.emplace_back(unit, *adopted);
    }
  }

 private:
  // A stage file is recorded like a brick, under its item's key. It has no checksums of its own.
  void StageFile(int64_t index, Resume& resume) {
    const tilery::Item& item = plan_.items[static_cast<size_t>(index)];
    const auto record = recorded_.find(item.key);
    if (record == recorded_.end()) return;
    try {
      if (Whole(record->second) &&
          HashFile(scratch_ / record->second.file) == record->second.hash) {
        resume.stages.emplace_back(index, record->second);
        return;
      }
    } catch (const Error&) {
      // Unreadable: the item is staged again.
    }
    ledger_.ForgetBrick(item.key);
  }

  // Its checksums are checked where it is read; a wrong one runs its unit again.
  bool Whole(const BrickRecord& record) const {
    std::error_code error;
    const auto size = std::filesystem::file_size(scratch_ / record.file, error);
    return !error && static_cast<int64_t>(size) == record.size;
  }

  std::optional<BrickRecord> Adopt(const std::string& key,
                                   const std::vector<std::string>& files) const {
    for (const std::string& file : files) {
      try {
        VerifyBrick(scratch_ / file, key);
        const auto stamp = StampOf(scratch_ / file);
        if (stamp) return BrickRecord{key, file, stamp->size, HashFile(scratch_ / file), 0};
      } catch (const Error&) {
        // Half a brick, or none of ours: the sweep takes it.
      }
    }
    return std::nullopt;
  }

  const Plan& plan_;
  const std::string& numerics_key_;
  const std::filesystem::path scratch_;
  Ledger& ledger_;
  std::unordered_map<std::string, std::vector<std::string>> on_disk_;
  std::unordered_map<std::string, BrickRecord> recorded_;
};

}  // namespace

std::string OutputKey(const std::string& item_key, const std::string& numerics_key) {
  return HashText(item_key + "/" + numerics_key);
}

Resume PlanResume(const Plan& plan, Existing existing, const std::string& numerics_key,
                  const std::string& scratch, Ledger& ledger) {
  Resume resume;
  resume.items.assign(plan.items.size(), ItemState::kOpen);
  std::vector<OutputRecord> touched;
  const std::vector<Look> looks = LookAtAll(plan, numerics_key, ledger, touched);
  std::vector<const Item*> strangers;
  for (size_t i = 0; i < plan.items.size(); ++i) {
    if (looks[i].found == Found::kStranger) strangers.push_back(&plan.items[i]);
  }
  if (!strangers.empty() && existing == Existing::kRefuse) Refuse(strangers);

  for (const OutputRecord& record : touched) ledger.RecordOutput(record);
  BrickFinder bricks(plan, numerics_key, scratch, ledger);
  for (size_t i = 0; i < plan.items.size(); ++i) {
    const Item& item = plan.items[i];
    if (!item.refused.empty()) {
      resume.items[i] = ItemState::kFailed;
      continue;
    }
    const Look& look = looks[i];
    if ((look.found == Found::kSame || look.found == Found::kTouched) && look.same_key) {
      resume.items[i] = ItemState::kUnchanged;
    } else if (look.found == Found::kStranger && existing == Existing::kSkip) {
      resume.items[i] = ItemState::kUnchanged;
    } else {
      // From now on the path is ours, whatever stands there.
      OutputRecord claim;
      claim.path = item.output;
      claim.item_key = OutputKey(item.key, numerics_key);
      look.published ? ledger.RecordOutput(claim) : ledger.ClaimOutput(claim.path, claim.item_key);
      bricks.Item(static_cast<int64_t>(i), resume);
    }
  }
  ledger.Commit();
  return resume;
}

}  // namespace tilery
