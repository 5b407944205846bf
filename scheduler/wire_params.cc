#include <utility>

#include "scheduler/wire.h"
#include "scheduler/wire_fields.h"

namespace tilery {
namespace {

Json TilingToJson(const Tiling& tiling) {
  return {{"tile", tiling.tile},
          {"overlap", tiling.overlap},
          {"trim", tiling.trim},
          {"multiple", tiling.multiple},
          {"scale", ScaleToJson(tiling.scale)},
          {"window", static_cast<int>(tiling.window)},
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
  return {{"dtype", static_cast<int>(raw.dtype)},
          {"shape", raw.shape},
          {"channels", raw.channels},
          {"big_endian", raw.big_endian},
          {"offset", raw.offset}};
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

Json GridTaskToJson(const GridTask& task) {
  const auto bound = [](const GridBound& b) { return Json{static_cast<int>(b.kind), b.value}; };
  Json named = Json::array();
  for (const auto& [name, b] : task.bounds.named) named.push_back({name, bound(b)});
  return {{"kind", static_cast<int>(task.kind)},
          {"method", static_cast<int>(task.bounds.method)},
          {"standard", bound(task.bounds.standard)},
          {"named", std::move(named)}};
}

GridTask GridTaskFromJson(const Json& json) {
  const auto bound = [](const Json& b) {
    return GridBound{EnumFrom(b.at(0), GridBound::Kind::kNone, "bound"), b.at(1).get<double>()};
  };
  GridTask task;
  task.kind = EnumFrom(json.at("kind"), GridTask::Kind::kDecompress, "task");
  task.bounds.method = EnumFrom(json.at("method"), GridMethod::kAuto, "method");
  task.bounds.standard = bound(json.at("standard"));
  for (const Json& entry : json.at("named"))
    task.bounds.named.emplace_back(entry.at(0).get<std::string>(), bound(entry.at(1)));
  return task;
}

}  // namespace

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
    scale[axis] =
        Rational::Of(json.at(2 * axis).get<int64_t>(), json.at(2 * axis + 1).get<int64_t>());
  }
  return scale;
}

Json ToJson(const Header& header) {
  static const Header usual;
  Json json = Json::object();
  json["format"] = header.format;
  json["shape"] = header.shape;
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
  if (params.grids) json["grids"] = GridTaskToJson(params.grids);
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
    if (json.contains("grids")) params.grids = GridTaskFromJson(json.at("grids"));
    return params;
  });
}

}  // namespace tilery
