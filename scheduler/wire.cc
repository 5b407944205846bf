#include "scheduler/wire.h"

#include <string>
#include <utility>

#include "scheduler/wire_fields.h"

namespace tilery {
namespace {

Json PublishedToJson(const Published& file) {
  return {{"size", file.size}, {"hash", file.hash}, {"stamp", ToJson(file.stamp)}};
}

Published PublishedFromJson(const Json& json) {
  return {json.at("size").get<int64_t>(), json.at("hash").get<std::string>(),
          StampFromJson(json.at("stamp"))};
}

Json LibrariesToJson(const std::vector<OperatorLibrary>& libraries) {
  Json json = Json::array();
  for (const OperatorLibrary& library : libraries) json.push_back({library.path, library.hash});
  return json;
}

}  // namespace

Json ToJson(const FileStamp& stamp) {
  return {stamp.size, stamp.mtime_ns, stamp.ctime_ns, stamp.inode};
}

FileStamp StampFromJson(const Json& json) {
  return Reading("file stamp", [&] {
    return FileStamp{json.at(0).get<int64_t>(), json.at(1).get<int64_t>(),
                     json.at(2).get<int64_t>(), json.at(3).get<uint64_t>()};
  });
}

Json ToJson(const WorkerContext& c) {
  Json params = Json::array();
  for (const ItemParams& p : c.params) params.push_back(ToJson(p));
  return {{"work", c.work},
          {"scratch", c.scratch},
          {"model", c.model},
          {"model_hash", c.model_hash},
          {"libraries", LibrariesToJson(c.libraries)},
          {"grids", c.grids},
          {"compiled_only", c.compiled_only},
          {"dims", c.dims},
          {"tile", c.tile},
          {"scale", ScaleToJson(c.scale)},
          {"model_in", c.model_in},
          {"model_out", c.model_out},
          {"batch", c.batch},
          {"slots", c.slots},
          {"precision", c.precision},
          {"layout", c.layout},
          {"package", c.package},
          {"package_hash", c.package_hash},
          {"numerics_key", c.numerics_key},
          {"device_kind", c.device_kind},
          {"torch", c.torch},
          {"lanes", c.lanes},
          {"graph", c.graph},
          {"device_memory", c.device_memory},
          {"shared", c.shared},
          {"model_bytes", c.model_bytes},
          {"pass_model", c.pass_model},
          {"params", std::move(params)}};
}

WorkerContext ContextFromJson(const Json& json) {
  return Reading("job context", [&] {
    WorkerContext c;
    json.at("work").get_to(c.work);
    json.at("scratch").get_to(c.scratch);
    json.at("model").get_to(c.model);
    json.at("model_hash").get_to(c.model_hash);
    for (const Json& library : json.at("libraries"))
      c.libraries.push_back({library.at(0).get<std::string>(), library.at(1).get<std::string>()});
    json.at("grids").get_to(c.grids);
    json.at("compiled_only").get_to(c.compiled_only);
    json.at("dims").get_to(c.dims);
    json.at("tile").get_to(c.tile);
    c.scale = ScaleFromJson(json.at("scale"));
    json.at("model_in").get_to(c.model_in);
    json.at("model_out").get_to(c.model_out);
    json.at("batch").get_to(c.batch);
    json.at("slots").get_to(c.slots);
    json.at("precision").get_to(c.precision);
    json.at("layout").get_to(c.layout);
    json.at("package").get_to(c.package);
    json.at("package_hash").get_to(c.package_hash);
    json.at("numerics_key").get_to(c.numerics_key);
    json.at("device_kind").get_to(c.device_kind);
    json.at("torch").get_to(c.torch);
    json.at("lanes").get_to(c.lanes);
    json.at("graph").get_to(c.graph);
    json.at("device_memory").get_to(c.device_memory);
    json.at("shared").get_to(c.shared);
    json.at("model_bytes").get_to(c.model_bytes);
    json.at("pass_model").get_to(c.pass_model);
    for (const Json& p : json.at("params")) c.params.push_back(ItemParamsFromJson(p));
    return c;
  });
}

Json ToJson(const UnitWork& work) {
  // One by one: a list in braces is built from as many temporary arrays, and this is what the
  // scheduler does most.
  static const UnitWork usual;
  Json json = Json::object();
  json["input"] = work.input;
  json["output"] = work.output;
  json["item_key"] = work.item_key;
  json["stamp"] = ToJson(work.stamp);
  json["header"] = ToJson(work.header);
  Put(json, "kind", work.kind, usual.kind);
  Put(json, "item", work.item, usual.item);
  Put(json, "params", work.params, usual.params);
  Put(json, "grid", work.grid, usual.grid);
  Put(json, "tiles", work.tiles, usual.tiles);
  Put(json, "block", work.block, usual.block);
  Put(json, "whole", work.whole, usual.whole);
  Put(json, "stage_file", work.stage_file, usual.stage_file);
  Put(json, "brick_key", work.brick_key, usual.brick_key);
  Put(json, "bricks_file", work.bricks_file, usual.bricks_file);
  if (!(work.sizing == usual.sizing)) {
    const UnitSizing& s = work.sizing;
    json["sizing"] = {s.tiles, s.accumulator_bytes, s.channels, s.tail_begin};
  }
  Put(json, "bricks_missing", work.bricks_missing, usual.bricks_missing);
  if (!work.bricks.empty()) json["bricks"] = ToJson(work.bricks);
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
    Get(json, "grid", work.grid);
    Get(json, "tiles", work.tiles);
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
    Get(json, "bricks_missing", work.bricks_missing);
    if (const auto found = json.find("bricks"); found != json.end())
      work.bricks = BricksFromJson(*found);
    return work;
  });
}

Json ToJson(const std::vector<Brick>& bricks) {
  Json json = Json::array();
  for (const Brick& brick : bricks) json.push_back({brick.block, brick.file, brick.key});
  return json;
}

std::vector<Brick> BricksFromJson(const Json& json) {
  return Reading("list of bricks", [&] {
    std::vector<Brick> bricks;
    for (const Json& brick : json) {
      bricks.push_back({brick.at(0).get<int64_t>(), brick.at(1).get<std::string>(),
                        brick.at(2).get<std::string>()});
    }
    return bricks;
  });
}

Json ToJson(const Outcome& outcome) {
  if (const auto* done = std::get_if<Done>(&outcome)) {
    Json json = Json::object();
    json["is"] = "done";
    json["file"] = done->file;
    json["published"] = PublishedToJson(done->published);
    json["tiles"] = done->tiles;
    Put(json, "repeated", done->repeated, int64_t{0});
    Put(json, "nonfinite_in", done->nonfinite_in, int64_t{0});
    Put(json, "careful", done->careful, int64_t{0});
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
  return {
      {"is", "lost"}, {"brick_key", lost.brick_key}, {"reason", lost.reason}, {"unit", lost.unit}};
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
      Get(json, "careful", done.careful);
      return done;
    }
    const auto text = [&](const char* name) { return json.at(name).get<std::string>(); };
    if (is == "retry") return Retry{text("stage"), text("reason")};
    if (is == "failed") return Failed{text("stage"), text("reason"), FaultFromName(text("fault"))};
    if (is == "lost")
      return LostBrick{text("brick_key"), text("reason"), json.at("unit").get<int64_t>()};
    throw Error(Fault::kInternal,
                "damaged outcome in a control message: kind '" + Printable(is, 40) + "'");
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
