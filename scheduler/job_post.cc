// output.post: the steps after the model.
#include <set>

#include "io/error.h"
#include "scheduler/job_value.h"

namespace tilery {
namespace {

constexpr const char* kForms =
    "clamp, sigmoid, softmax, argmax, {threshold: x}, {scale: [a, b]}, {labels: [v0, v1, ...]}";

const char* Name(PostOp::Kind kind) {
  switch (kind) {
    case PostOp::Kind::kClamp:
      return "clamp";
    case PostOp::Kind::kSigmoid:
      return "sigmoid";
    case PostOp::Kind::kSoftmax:
      return "softmax";
    case PostOp::Kind::kArgmax:
      return "argmax";
    case PostOp::Kind::kThreshold:
      return "threshold";
    case PostOp::Kind::kScale:
      return "scale";
    case PostOp::Kind::kLabels:
      return "labels";
  }
  return "";
}

PostOp OneStep(const JobValue& step, const JobKey& key) {
  const auto refuse = [&] {
    const std::string word = step.kind == JobValue::Kind::kScalar ? step.text
                             : step.kind == JobValue::Kind::kMap && !step.entries.empty()
                                 ? step.entries[0].first
                                 : "";
    const std::string near = NearestWord(
        word, {"clamp", "sigmoid", "softmax", "argmax", "threshold", "scale", "labels"});
    RefuseValue(step, key.key,
                "'" + Shown(step) + "' is no step; allowed: " + kForms +
                    (near.empty() ? "" : "; the nearest is '" + near + "'"));
  };
  PostOp op;
  if (step.kind == JobValue::Kind::kScalar) {
    using Kind = PostOp::Kind;
    for (const Kind kind : {Kind::kClamp, Kind::kSigmoid, Kind::kSoftmax, Kind::kArgmax}) {
      if (step.text == Name(kind)) {
        op.kind = kind;
        return op;
      }
    }
    refuse();
  }
  if (step.kind != JobValue::Kind::kMap || step.entries.size() != 1) refuse();
  const auto& [name, argument] = step.entries[0];
  const JobKey as_numbers{key.key, KeyType::kNumbers, "", "", 0, "", "", ""};
  if (name == "threshold") {
    op.kind = PostOp::Kind::kThreshold;
  } else if (name == "scale") {
    op.kind = PostOp::Kind::kScale;
  } else if (name == "labels") {
    op.kind = PostOp::Kind::kLabels;
  } else {
    refuse();
  }
  op.values = AsNumbers(argument, as_numbers);
  const size_t want = op.kind == PostOp::Kind::kThreshold ? 1
                      : op.kind == PostOp::Kind::kScale   ? 2
                                                          : 0;
  if (want != 0 && op.values.size() != want) {
    RefuseValue(step, key.key,
                name + " takes " + std::to_string(want) + " number(s), not " +
                    std::to_string(op.values.size()));
  }
  return op;
}

}  // namespace

std::vector<PostOp> AsPost(const JobValue& value, const JobKey& key) {
  std::vector<PostOp> post;
  const bool list = value.kind == JobValue::Kind::kList;
  if (value.kind == JobValue::Kind::kNull) return post;
  // A flag may carry a list inside its list: --output.post '[sigmoid, {threshold: 0.5}]'.
  const JobValue& steps =
      list && value.items.size() == 1 && value.items[0].kind == JobValue::Kind::kList
          ? value.items[0]
          : value;
  if (steps.kind == JobValue::Kind::kList) {
    for (const JobValue& step : steps.items) post.push_back(OneStep(step, key));
  } else {
    post.push_back(OneStep(steps, key));
  }
  bool labels = false;
  for (size_t k = 0; k < post.size(); ++k) {
    const PostOp::Kind kind = post[k].kind;
    if (kind == PostOp::Kind::kLabels) {
      if (k == 0 || (post[k - 1].kind != PostOp::Kind::kArgmax &&
                     post[k - 1].kind != PostOp::Kind::kThreshold)) {
        RefuseValue(value, key.key,
                    "labels must follow argmax or threshold: it maps their results");
      }
    } else if (labels) {
      RefuseValue(value, key.key,
                  std::string(Name(kind)) + " stands after " + Name(post[k - 1].kind) +
                      "; argmax and threshold come last, but for labels");
    }
    labels = labels || kind == PostOp::Kind::kArgmax || kind == PostOp::Kind::kThreshold;
  }
  return post;
}

}  // namespace tilery
