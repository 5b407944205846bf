// The output of a job: path, type, steps after the model.
#include "scheduler/job_filler.h"

namespace tilery {
namespace fs = std::filesystem;
namespace {

// Refuses a type that the output's format holds in no picture or volume.
void CheckDType(const JobValue& value, const JobKey& key, const OutputSpec& output) {
  const std::string format = FormatOfExtension(output.path);
  if (format.empty() || !output.dtype) return;
  std::string why;
  for (const uint8_t dims : {3, 2}) {
    for (const int32_t channels : {1, 3}) {
      Header header;
      header.format = format;
      header.dtype = *output.dtype;
      header.dims = dims;
      header.channels = channels;
      header.shape = dims == 3 ? Index{2, 2, 2} : Index{1, 2, 2};
      why = WhyNot(format, header);
      if (why.empty()) return;
    }
  }
  RefuseValue(value, key.key, "'" + Shown(value) + "' for " + Printable(output.path) + ": " + why);
}

void CheckGridOutput(const JobValue& value, const JobKey& key, Task task, std::string& path) {
  const std::string wanted = OutputExtension(task);
  if (path.ends_with('/')) path += "{reldir}/{stem}" + wanted;
  if (fs::path(path).extension().string() == wanted) return;
  RefuseValue(value, key.key,
              "'" + Shown(value) + "': task: " + TaskName(task) + " writes " + wanted +
                  " files; name one, or a folder, which ends in /");
}

}  // namespace

void FillOutput(const JobFiller& from, Job& job) {
  if (from.Find("output.path") == nullptr) from.Missing("output.path", "output");
  OutputSpec output;
  from.With("output.name", [&](auto& v, auto& k) { output.name = AsText(v, k); });
  from.With("output.path", [&](auto& v, auto& k) {
    output.path = from.PathOf(v, k);
    try {
      CheckTemplate(output.path);
    } catch (const Error& error) {
      throw Error(Fault::kUsage, v.where + ": " + error.what());
    }
    if (!output.path.ends_with('/') && IsFolder(output.path)) output.path += '/';
    if (job.task != Task::kInfer) return CheckGridOutput(v, k, job.task, output.path);
    if (output.path.ends_with('/') || output.path.ends_with("{ext}") ||
        output.path.ends_with("{name}") || !FormatOfExtension(output.path).empty()) {
      return;
    }
    const std::string extension = fs::path(output.path).extension().string();
    std::string known;
    for (const std::string& each : KnownExtensions()) known += (known.empty() ? "" : " ") + each;
    const std::string near = NearestWord(extension, KnownExtensions());
    RefuseValue(v, k.key,
                "'" + Shown(v) + "': no format is known for " +
                    (extension.empty() ? "a name without extension"
                                       : "'" + Printable(extension, 60) + "'") +
                    "; known: " + known + (near.empty() ? "" : "; the nearest is '" + near + "'") +
                    "; a folder ends in /");
  });
  from.With("output.dtype", [&](auto& v, auto& k) {
    const std::string word = AsWord(v, k);
    if (word != "auto") output.dtype = DTypeFromName(word);
  });
  from.With("output.post", [&](auto& v, auto& k) { output.post = AsPost(v, k); });
  from.With("output.existing", [&](auto& v, auto& k) {
    output.existing = Named<Existing>(v, k,
                                      {{"refuse", Existing::kRefuse},
                                       {"skip", Existing::kSkip},
                                       {"replace", Existing::kReplace}});
  });
  from.With("output.losses",
            [&](auto& v, auto& k) { output.allow_losses = AsWord(v, k) == "allow"; });
  from.With("output.dtype", [&](auto& v, auto& k) { CheckDType(v, k, output); });
  job.outputs.push_back(std::move(output));
}

}  // namespace tilery
