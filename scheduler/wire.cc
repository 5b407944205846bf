#include "scheduler/wire.h"

#include <concepts>
#include <string>
#include <type_traits>
#include <utility>

#include "io/error.h"

namespace tilery {
namespace {

// Runs `read`; what the JSON library throws becomes an Error that names the value at fault.
template <typename Read>
auto Reading(const char* what, Read read) {
  try {
    return read();
  } catch (const Json::exception& error) {
    throw Error(Fault::kInternal, std::string("damaged ") + what + " in a control message: " + error.what());
  }
}

template <typename E>
  requires std::is_enum_v<E>
E EnumFrom(const Json& json, E last, const char* what) {
  const int64_t value = json.get<int64_t>();
  if (value < 0 || value > static_cast<int64_t>(last)) {
    throw Error(Fault::kInternal, std::string("damaged ") + what + " in a control message: " +
                                      std::to_string(value) + " is not in 0.." +
                                      std::to_string(static_cast<int64_t>(last)));
  }
  return static_cast<E>(value);
}

// A field is written if it differs from its default, and read over the default if it is there.
template <typename T>
void Put(Json& json, const char* name, const T& value, const T& usual) {
  if (!(value == usual)) json[name] = value;
}
template <typename E>
  requires std::is_enum_v<E>
void Put(Json& json, const char* name, const E& value, const E& usual) {
  if (value != usual) json[name] = static_cast<int>(value);
}
template <typename T>
void Get(const Json& json, const char* name, T& value) {
  if (const auto found = json.find(name); found != json.end()) found->get_to(value);
}
template <typename E>
void GetEnum(const Json& json, const char* name, E last, E& value) {
  if (const auto found = json.find(name); found != json.end()) value = EnumFrom(*found, last, name);
}

Json ScaleToJson(const Scale& scale) {
  Json json = Json::array();
  for (const Rational& r : scale) {
    json.push_back(r.num);
    json.push_back(r.den);
  }
  return json;
}

Scale ScaleFromJson(const Json& json) {
  Scale scale;
  for (size_t axis = 0; axis < 3; ++axis) {
    scale[axis] = Rational::Of(json.at(2 * axis).get<int64_t>(), json.at(2 * axis + 1).get<int64_t>());
  }
  return scale;
}

Json TilingToJson(const Tiling& tiling) {
  return {{"tile", tiling.tile},         {"overlap", tiling.overlap},
          {"trim", tiling.trim},         {"multiple", tiling.multiple},
          {"scale", ScaleToJson(tiling.scale)}, {"window", static_cast<int>(tiling.window)},
          {"pad", static_cast<int>(tiling.pad)}};
}

Tiling TilingFromJson(const Json& json) {
  Tiling tiling;
  json.at("tile").get_to(tiling.tile);
  json.at("overlap").get_to(tiling.overlap);
  json.at("trim").get_to(tiling.trim);
  json.at("multiple").get_to(tiling.multiple);
  tiling.scale = ScaleFromJson(json.at("scale"));
  tiling.window = EnumFrom(json.at("window"), WindowKind::kGaussian, "window");
  tiling.pad = EnumFrom(json.at("pad"), PadMode::kZero, "pad mode");
  return tiling;
}

Json PassToJson(const Pass& pass) {
  return {{"op", static_cast<int>(pass.op)},
          {"reduce", static_cast<int>(pass.reduce)},
          {"in", pass.in},
          {"out", pass.out},
          {"out_begin", pass.out_begin},
          {"out_count", pass.out_count},
          {"is_alpha", pass.is_alpha}};
}

Pass PassFromJson(const Json& json) {
  Pass pass;
  pass.op = EnumFrom(json.at("op"), Pass::Op::kCopy, "pass");
  pass.reduce = EnumFrom(json.at("reduce"), Pass::Reduce::kMean, "pass");
  json.at("in").get_to(pass.in);
  json.at("out").get_to(pass.out);
  json.at("out_begin").get_to(pass.out_begin);
  json.at("out_count").get_to(pass.out_count);
  json.at("is_alpha").get_to(pass.is_alpha);
  return pass;
}

Json TransferToJson(const Transfer& t) {
  Json passes = Json::array(), post = Json::array();
  for (const Pass& pass : t.passes) passes.push_back(PassToJson(pass));
  for (const PostOp& op : t.post) {
    post.push_back({{"kind", static_cast<int>(op.kind)}, {"values", op.values}});
  }
  return {{"in_dtype", static_cast<int>(t.in_dtype)},
          {"raw", {t.raw_lo, t.raw_hi}},
          {"range", {t.range_lo, t.range_hi}},
          {"mean", t.mean},
          {"std", t.std},
          {"model_in", t.model_in},
          {"model_out", t.model_out},
          {"passes", std::move(passes)},
          {"accumulators", t.accumulators},
          {"post", std::move(post)},
          {"out_dtype", static_cast<int>(t.out_dtype)},
          {"out_channels", t.out_channels},
          {"labels", t.labels},
          {"nonfinite", static_cast<int>(t.nonfinite)}};
}

Transfer TransferFromJson(const Json& json) {
  Transfer t;
  t.in_dtype = EnumFrom(json.at("in_dtype"), DType::kF64, "sample type");
  t.raw_lo = json.at("raw").at(0).get<double>();
  t.raw_hi = json.at("raw").at(1).get<double>();
  t.range_lo = json.at("range").at(0).get<double>();
  t.range_hi = json.at("range").at(1).get<double>();
  json.at("mean").get_to(t.mean);
  json.at("std").get_to(t.std);
  json.at("model_in").get_to(t.model_in);
  json.at("model_out").get_to(t.model_out);
  for (const Json& pass : json.at("passes")) t.passes.push_back(PassFromJson(pass));
  json.at("accumulators").get_to(t.accumulators);
  for (const Json& op : json.at("post")) {
    t.post.push_back({EnumFrom(op.at("kind"), PostOp::Kind::kLabels, "post step"),
                      op.at("values").get<std::vector<double>>()});
  }
  t.out_dtype = EnumFrom(json.at("out_dtype"), DType::kF64, "sample type");
  json.at("out_channels").get_to(t.out_channels);
  json.at("labels").get_to(t.labels);
  t.nonfinite = EnumFrom(json.at("nonfinite"), Transfer::NonFinite::kFail, "nonfinite");
  return t;
}

Json RawToJson(const RawLayout& raw) {
  return {{"dtype", static_cast<int>(raw.dtype)}, {"shape", raw.shape},   {"channels", raw.channels},
          {"big_endian", raw.big_endian},         {"offset", raw.offset}};
}

RawLayout RawFromJson(const Json& json) {
  RawLayout raw;
  raw.dtype = EnumFrom(json.at("dtype"), DType::kF64, "sample type");
  json.at("shape").get_to(raw.shape);
  json.at("channels").get_to(raw.channels);
  json.at("big_endian").get_to(raw.big_endian);
  json.at("offset").get_to(raw.offset);
  return raw;
}

Json PublishedToJson(const Published& file) {
  return {{"size", file.size}, {"hash", file.hash}, {"stamp", ToJson(file.stamp)}};
}

Published PublishedFromJson(const Json& json) {
  return {json.at("size").get<int64_t>(), json.at("hash").get<std::string>(),
          StampFromJson(json.at("stamp"))};
}

Json BrickToJson(const Brick& brick) { return {brick.block, brick.file, brick.key}; }

Brick BrickFromJson(const Json& json) {
  return {json.at(0).get<int64_t>(), json.at(1).get<std::string>(), json.at(2).get<std::string>()};
}

}  // namespace

Json ToJson(const FileStamp& stamp) { return {stamp.size, stamp.mtime_ns, stamp.ctime_ns, stamp.inode}; }

FileStamp StampFromJson(const Json& json) {
  return Reading("file stamp", [&] {
    return FileStamp{json.at(0).get<int64_t>(), json.at(1).get<int64_t>(), json.at(2).get<int64_t>(),
                     json.at(3).get<uint64_t>()};
  });
}

Json ToJson(const Header& header) {
  static const Header usual;
  Json json = {{"format", header.format}, {"shape", header.shape}};
  Put(json, "dtype", header.dtype, usual.dtype);
  Put(json, "dims", header.dims, usual.dims);
  Put(json, "alpha", header.alpha, usual.alpha);
  Put(json, "access", header.access, usual.access);
  Put(json, "channels", header.channels, usual.channels);
  return json;
}

Header HeaderFromJson(const Json& json) {
  return Reading("header", [&] {
    Header header;
    json.at("format").get_to(header.format);
    json.at("shape").get_to(header.shape);
    GetEnum(json, "dtype", DType::kF64, header.dtype);
    Get(json, "dims", header.dims);
    GetEnum(json, "alpha", AlphaKind::kAssociated, header.alpha);
    GetEnum(json, "access", Access::kRows, header.access);
    Get(json, "channels", header.channels);
    return header;
  });
}

Json ToJson(const ItemParams& params) {
  Json json = {{"dims", params.dims},
               {"tiling", TilingToJson(params.tiling)},
               {"transfer", TransferToJson(params.transfer)},
               {"output", ToJson(params.output)},
               {"allow_losses", params.allow_losses}};
  if (params.raw) json["raw"] = RawToJson(*params.raw);
  return json;
}

ItemParams ItemParamsFromJson(const Json& json) {
  return Reading("parameters", [&] {
    ItemParams params;
    json.at("dims").get_to(params.dims);
    params.tiling = TilingFromJson(json.at("tiling"));
    params.transfer = TransferFromJson(json.at("transfer"));
    params.output = HeaderFromJson(json.at("output"));
    json.at("allow_losses").get_to(params.allow_losses);
    if (json.contains("raw")) params.raw = RawFromJson(json.at("raw"));
    return params;
  });
}

Json ToJson(const WorkerContext& c) {
  Json params = Json::array();
  for (const ItemParams& p : c.params) params.push_back(ToJson(p));
  return {{"work", c.work},
          {"scratch", c.scratch},
          {"model", c.model},
          {"model_hash", c.model_hash},
          {"dims", c.dims},
          {"tile", c.tile},
          {"scale", ScaleToJson(c.scale)},
          {"model_in", c.model_in},
          {"model_out", c.model_out},
          {"batch", c.batch},
          {"precision", c.precision},
          {"numerics_key", c.numerics_key},
          {"device_kind", c.device_kind},
          {"torch", c.torch},
          {"lanes", c.lanes},
          {"params", std::move(params)}};
}

WorkerContext ContextFromJson(const Json& json) {
  return Reading("job context", [&] {
    WorkerContext c;
    json.at("work").get_to(c.work);
    json.at("scratch").get_to(c.scratch);
    json.at("model").get_to(c.model);
    json.at("model_hash").get_to(c.model_hash);
    json.at("dims").get_to(c.dims);
    json.at("tile").get_to(c.tile);
    c.scale = ScaleFromJson(json.at("scale"));
    json.at("model_in").get_to(c.model_in);
    json.at("model_out").get_to(c.model_out);
    json.at("batch").get_to(c.batch);
    json.at("precision").get_to(c.precision);
    json.at("numerics_key").get_to(c.numerics_key);
    json.at("device_kind").get_to(c.device_kind);
    json.at("torch").get_to(c.torch);
    json.at("lanes").get_to(c.lanes);
    for (const Json& p : json.at("params")) c.params.push_back(ItemParamsFromJson(p));
    return c;
  });
}

Json ToJson(const UnitWork& work) {
  static const UnitWork usual;
  Json json = {{"input", work.input},
               {"output", work.output},
               {"item_key", work.item_key},
               {"stamp", ToJson(work.stamp)},
               {"header", ToJson(work.header)}};
  Put(json, "kind", work.kind, usual.kind);
  Put(json, "item", work.item, usual.item);
  Put(json, "params", work.params, usual.params);
  Put(json, "block", work.block, usual.block);
  Put(json, "whole", work.whole, usual.whole);
  Put(json, "stage_file", work.stage_file, usual.stage_file);
  Put(json, "brick_key", work.brick_key, usual.brick_key);
  Put(json, "bricks_file", work.bricks_file, usual.bricks_file);
  if (!(work.sizing == usual.sizing)) {
    const UnitSizing& s = work.sizing;
    json["sizing"] = {s.tiles, s.accumulator_bytes, s.channels, s.tail_begin};
  }
  if (!work.bricks.empty()) {
    Json& bricks = json["bricks"] = Json::array();
    for (const Brick& brick : work.bricks) bricks.push_back(BrickToJson(brick));
  }
  return json;
}

UnitWork UnitWorkFromJson(const Json& json) {
  return Reading("unit", [&] {
    UnitWork work;
    json.at("input").get_to(work.input);
    json.at("output").get_to(work.output);
    json.at("item_key").get_to(work.item_key);
    work.stamp = StampFromJson(json.at("stamp"));
    work.header = HeaderFromJson(json.at("header"));
    GetEnum(json, "kind", UnitKind::kFinish, work.kind);
    Get(json, "item", work.item);
    Get(json, "params", work.params);
    Get(json, "block", work.block);
    Get(json, "whole", work.whole);
    Get(json, "stage_file", work.stage_file);
    Get(json, "brick_key", work.brick_key);
    Get(json, "bricks_file", work.bricks_file);
    if (const auto s = json.find("sizing"); s != json.end()) {
      s->at(0).get_to(work.sizing.tiles);
      s->at(1).get_to(work.sizing.accumulator_bytes);
      s->at(2).get_to(work.sizing.channels);
      s->at(3).get_to(work.sizing.tail_begin);
    }
    if (const auto bricks = json.find("bricks"); bricks != json.end()) {
      for (const Json& brick : *bricks) work.bricks.push_back(BrickFromJson(brick));
    }
    return work;
  });
}

Json ToJson(const Outcome& outcome) {
  if (const auto* done = std::get_if<Done>(&outcome)) {
    Json json = {{"is", "done"}, {"file", done->file}, {"published", PublishedToJson(done->published)},
                 {"tiles", done->tiles}};
    Put(json, "repeated", done->repeated, int64_t{0});
    Put(json, "nonfinite_in", done->nonfinite_in, int64_t{0});
    return json;
  }
  if (const auto* retry = std::get_if<Retry>(&outcome)) {
    return {{"is", "retry"}, {"stage", retry->stage}, {"reason", retry->reason}};
  }
  if (const auto* failed = std::get_if<Failed>(&outcome)) {
    return {{"is", "failed"},
            {"stage", failed->stage},
            {"reason", failed->reason},
            {"fault", FaultName(failed->fault)}};
  }
  const auto& lost = std::get<LostBrick>(outcome);
  return {{"is", "lost"}, {"brick_key", lost.brick_key}, {"reason", lost.reason}, {"unit", lost.unit}};
}

Outcome OutcomeFromJson(const Json& json) {
  return Reading("outcome", [&]() -> Outcome {
    const auto is = json.at("is").get<std::string>();
    if (is == "done") {
      Done done;
      json.at("file").get_to(done.file);
      done.published = PublishedFromJson(json.at("published"));
      json.at("tiles").get_to(done.tiles);
      Get(json, "repeated", done.repeated);
      Get(json, "nonfinite_in", done.nonfinite_in);
      return done;
    }
    const auto text = [&](const char* name) { return json.at(name).get<std::string>(); };
    if (is == "retry") return Retry{text("stage"), text("reason")};
    if (is == "failed") return Failed{text("stage"), text("reason"), FaultFromName(text("fault"))};
    if (is == "lost") return LostBrick{text("brick_key"), text("reason"), json.at("unit").get<int64_t>()};
    throw Error(Fault::kInternal, "damaged outcome in a control message: kind '" + Printable(is, 40) + "'");
  });
}

// One brick a line: block, key, file. File names are ours and hold no line break.
std::string BricksToText(const std::vector<Brick>& bricks) {
  std::string text;
  for (const Brick& b : bricks) text += std::to_string(b.block) + " " + b.key + " " + b.file + "\n";
  return text;
}

std::vector<Brick> BricksFromText(const std::string& text) {
  std::vector<Brick> bricks;
  for (size_t at = 0; at < text.size();) {
    const size_t end = text.find('\n', at);
    const size_t key = text.find(' ', at);
    const size_t file = key == std::string::npos ? key : text.find(' ', key + 1);
    if (end == std::string::npos || file == std::string::npos || file > end) {
      throw Error(Fault::kTransient, "damaged list of bricks at byte " + std::to_string(at));
    }
    Brick brick;
    brick.block = std::atoll(text.c_str() + at);
    brick.key = text.substr(key + 1, file - key - 1);
    brick.file = text.substr(file + 1, end - file - 1);
    bricks.push_back(std::move(brick));
    at = end + 1;
  }
  return bricks;
}

}  // namespace tilery
