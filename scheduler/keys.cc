#include "scheduler/keys.h"

#include <bit>

#include "scheduler/planner.h"

namespace tilery {
namespace {

// Unambiguous text: every value is preceded by its name, texts by their length, and numbers with a
// fraction are written as their bits.
class KeyText {
 public:
  KeyText& Add(const char* name, int64_t value) {
    text_ += name;
    text_ += '=';
    text_ += std::to_string(value);
    text_ += ';';
    return *this;
  }
  KeyText& Add(const char* name, double value) {
    return Add(name, std::bit_cast<int64_t>(value == 0 ? 0.0 : value));  // -0 is 0
  }
  KeyText& Add(const char* name, const std::string& value) {
    Add(name, static_cast<int64_t>(value.size()));
    text_ += value;
    text_ += ';';
    return *this;
  }
  template <typename List>
  KeyText& Each(const char* name, const List& list) {
    Add(name, static_cast<int64_t>(list.size()));
    for (const auto& value : list) Add("", Wide(value));
    return *this;
  }
  const std::string& text() const { return text_; }

 private:
  static int64_t Wide(int32_t value) { return value; }
  static int64_t Wide(int64_t value) { return value; }
  static double Wide(double value) { return value; }
  std::string text_;
};

void AddTransfer(const Transfer& t, KeyText& key) {
  key.Add("in", static_cast<int64_t>(t.in_dtype)).Add("raw_lo", t.raw_lo).Add("raw_hi", t.raw_hi);
  key.Add("lo", t.range_lo).Add("hi", t.range_hi).Each("mean", t.mean).Each("std", t.std);
  key.Add("model_in", int64_t{t.model_in}).Add("model_out", int64_t{t.model_out});
  for (const Pass& pass : t.passes) {
    key.Add("pass", static_cast<int64_t>(pass.op)).Add("reduce", static_cast<int64_t>(pass.reduce));
    key.Each("from", pass.in).Each("to", pass.out);
    key.Add("begin", int64_t{pass.out_begin}).Add("count", int64_t{pass.out_count});
    key.Add("alpha", int64_t{pass.is_alpha});
  }
  for (const PostOp& op : t.post) {
    key.Add("post", static_cast<int64_t>(op.kind)).Each("values", op.values);
  }
  key.Add("acc", int64_t{t.accumulators}).Add("out", static_cast<int64_t>(t.out_dtype));
  key.Add("out_channels", int64_t{t.out_channels}).Add("labels", int64_t{t.labels});
  key.Add("nonfinite", static_cast<int64_t>(t.nonfinite));
}

void AddTiling(const Tiling& tiling, KeyText& key) {
  key.Each("tile", tiling.tile).Each("overlap", tiling.overlap).Each("trim", tiling.trim);
  key.Each("multiple", tiling.multiple);
  for (const Rational& scale : tiling.scale) key.Add("num", scale.num).Add("den", scale.den);
  key.Add("window", static_cast<int64_t>(tiling.window))
      .Add("pad", static_cast<int64_t>(tiling.pad));
}

void AddGrids(const GridTask& task, KeyText& key) {
  const auto add = [&](const GridBound& bound) {
    key.Add("bound", static_cast<int64_t>(bound.kind)).Add("value", bound.value);
  };
  key.Add("codec", int64_t{kGridCodecNumber}).Add("task", static_cast<int64_t>(task.kind));
  key.Add("method", static_cast<int64_t>(task.bounds.method));
  add(task.bounds.standard);
  for (const auto& [name, bound] : task.bounds.named) {
    key.Add("grid", name);
    add(bound);
  }
}

// How the item is cut: unit sizes decide bytes only through the blocks that come of them, so a job
// that grows by a picture keeps the keys of all the others.
void AddBlocks(const Item& item, const ItemParams& params, KeyText& key) {
  key.Add("units", int64_t{item.infer_units});
  if (item.infer_units <= 1) return;
  const ItemGeometry geometry(item.header.shape, params.tiling, item.sizing, item.grid.tiles);
  for (int64_t unit = 0; unit < geometry.units(); ++unit) {
    key.Each("end", geometry.unit_tiles(unit).end);
  }
}

}  // namespace

std::string ItemKey(const Item& item, const ItemParams& params, const std::string& model_hash,
                    const FileStamp& identity) {
  KeyText key;
  if (params.grids) {
    AddGrids(params.grids, key);
  } else {
    key.Add("numerics", int64_t{kNumericsNumber}).Add("model", model_hash);
  }
  key.Add("dims", int64_t{params.dims});
  AddTiling(params.tiling, key);
  AddTransfer(params.transfer, key);
  key.Add("format", params.output.format).Add("out_dims", int64_t{params.output.dims});
  key.Add("out_alpha", static_cast<int64_t>(params.output.alpha));
  if (params.raw) {
    const RawLayout& raw = *params.raw;
    key.Add("raw", static_cast<int64_t>(raw.dtype)).Each("raw_shape", raw.shape);
    key.Add("raw_channels", int64_t{raw.channels}).Add("raw_big", int64_t{raw.big_endian});
    key.Add("raw_offset", raw.offset);
  }
  key.Each("shape", item.header.shape).Add("support", static_cast<int64_t>(item.support));
  if (!item.grid.label.empty()) key.Add("grid", item.grid.label);
  AddBlocks(item, params, key);
  key.Add("input", item.input).Add("size", identity.size).Add("mtime", identity.mtime_ns);
  key.Add("ctime", identity.ctime_ns).Add("inode", static_cast<int64_t>(identity.inode));
  return HashText(key.text());
}

std::string UnitKey(const std::string& item_key, const std::string& numerics_key, int64_t block) {
  return HashText(item_key + '\n' + numerics_key + '\n' + std::to_string(block));
}

}  // namespace tilery
