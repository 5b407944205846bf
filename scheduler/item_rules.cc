#include "scheduler/item_rules.h"

#include <algorithm>
#include <cmath>

#include "io/error.h"
#include "scheduler/transfer_rules.h"

namespace tilery {
namespace {

// The smallest type that holds all labels: unsigned where none is negative, f32 where one is no
// integer.
DType LabelType(const std::vector<double>& labels) {
  const auto [low, high] = std::minmax_element(labels.begin(), labels.end());
  if (std::any_of(labels.begin(), labels.end(), [](double x) { return x != std::floor(x); })) {
    return DType::kF32;
  }
  using enum DType;
  for (const DType type : {kU8, kU16, kU32}) {
    if (*low >= 0 && *high <= HighestOf(type)) return type;
  }
  for (const DType type : {kI8, kI16, kI32}) {
    if (*low >= LowestOf(type) && *high <= HighestOf(type)) return type;
  }
  return kF64;
}

void CheckLabels(DType type, const std::vector<double>& labels) {
  for (const double label : labels) {
    const bool fits = IsFloat(type) || (label == std::floor(label) && label >= LowestOf(type) &&
                                        label <= HighestOf(type));
    if (fits) continue;
    std::string text = std::to_string(label);
    text.erase(text.find_last_not_of('0') + 1);
    if (text.ends_with('.')) text.pop_back();
    throw Error(Fault::kUsage, std::string("output.dtype: ") + DTypeName(type) +
                                   " can't hold the label " + text + "; use " +
                                   DTypeName(LabelType(labels)) + " or auto");
  }
}

// WhyNot for a shape that every format with these dims can hold.
std::string WhyNotOfKind(Header header) {
  header.shape = header.dims == 3 ? Index{2, 2, 2} : Index{1, 2, 2};
  return WhyNot(header.format, header);
}

// The type nearest to `wanted` that the format holds, for jobs that allow losses.
DType Fallback(Header header, DType wanted) {
  using enum DType;
  for (const DType type : {wanted, kF32, kU16, kU8}) {
    header.dtype = type;
    if (DTypeSize(type) > DTypeSize(wanted) && wanted != kF16) continue;
    if (WhyNotOfKind(header).empty()) return type;
  }
  return wanted;
}

DType AutoType(const PostResult& post, const Header& input, Header output) {
  if (post.labels) return LabelType(post.values);
  if (!post.probabilities) return input.dtype;
  output.dtype = DType::kF32;
  return WhyNotOfKind(output).empty() ? DType::kF32 : input.dtype;
}

}  // namespace

int32_t ColoursOf(const Header& header) {
  return header.channels - (header.alpha == AlphaKind::kNone ? 0 : 1);
}

Index OutputShape(const Index& shape, const Tiling& tiling) {
  Index out{};
  for (size_t axis = 0; axis < 3; ++axis) out[axis] = tiling.scale[axis].Ceil(shape[axis]);
  return out;
}

ItemRules DecideItem(const Job& job, const Contract& contract, const Tiling& tiling, int dims,
                     const Header& header, const std::string& output_format) {
  const OutputSpec& spec = job.outputs.at(0);
  const PostResult post = JudgePost(spec.post, *contract.channels_out);
  const bool scaled = tiling.scale != Scale{};
  ItemRules rules;
  ItemParams& params = rules.params;
  params.dims = dims;
  params.tiling = tiling;
  params.raw = job.input.raw;
  params.allow_losses = spec.allow_losses;

  // With losses allowed, alpha goes where the format can't hold it.
  for (const bool keep_alpha : {true, false}) {
    Transfer& t = params.transfer;
    t = Transfer{};
    AlphaKind alpha = AlphaKind::kNone;
    rules.refused = FillPasses(job, contract, header, post, scaled, keep_alpha, t, alpha);
    if (!rules.refused.empty()) return rules;
    Header& output = params.output;
    output = Header{};
    output.format = output_format;
    output.dims = header.dims;
    output.channels = t.out_channels;
    output.alpha = alpha;
    output.dtype = spec.dtype ? *spec.dtype : AutoType(post, header, output);
    if (post.labels) CheckLabels(output.dtype, post.values);
    std::string why = WhyNotOfKind(output);
    if (!why.empty() && spec.allow_losses && !spec.dtype && !post.labels) {
      output.dtype = Fallback(output, output.dtype);
      why = WhyNotOfKind(output);
    }
    t.out_dtype = output.dtype;
    if (why.empty()) return rules;
    rules.refused = why;
    if (alpha == AlphaKind::kNone || !spec.allow_losses) break;
  }
  rules.refused += "; choose another format, output.dtype or input.alpha";
  if (!spec.allow_losses) rules.refused += ", or output.losses: allow";
  return rules;
}

}  // namespace tilery
