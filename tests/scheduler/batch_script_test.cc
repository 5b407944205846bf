#include "scheduler/batch_script.h"

#include <gtest/gtest.h>

#include "cluster/process.h"
#include "tests/io/expect_error.h"
#include "tests/scheduler/expect_words.h"

namespace tilery {
namespace {

TEST(FillTemplate, PutsValuesInAndLeavesOutLinesOfWordsWithoutOne) {
  EXPECT_EQ(FillTemplate("a {{X}} b {{X}}{{Y}}\n{{NONE}} gone\nrest\n", "t.sh",
                         {{"X", "1"}, {"Y", ""}, {"NONE", std::nullopt}}),
            "a 1 b 1\nrest\n");
  EXPECT_EQ(FillTemplate("no end {{X\n", "t.sh", {{"X", "1"}}), "no end {{X\n");
  // What a value holds is no template.
  EXPECT_EQ(FillTemplate("{{X}}", "t.sh", {{"X", "{{Y}}"}}), "{{Y}}\n");
}

TEST(FillTemplate, RefusesAWordThatThereIsNotWithItsLineAndThoseThereAre) {
  ExpectWords(ErrorOf(Fault::kUsage,
                      [] {
                        FillTemplate("a\n{{Z}}\n", "mine.sh", {{"X", "1"}, {"Y", "1"}});
                      }),
              {"mine.sh:2", "{{Z}}", "X Y"});
}

TEST(ShellWord, ComesThroughAShellAsItWas) {
  for (const std::string& text :
       {std::string("plain-1.2_3/a:b,c=d@e%+"), std::string(""), std::string("two words"),
        std::string("it's"), std::string("$HOME `id` \"x\" \\ ! * ; & | < > ~ #"),
        std::string("line\nline"), std::string("=start"), std::string("\xc3\xa4")}) {
    const Ran ran =
        RunToEnd({.program = "/bin/sh", .arguments = {"-c", "printf %s " + ShellWord(text)}}, "");
    EXPECT_EQ(ran.output, text);
  }
  EXPECT_EQ(ShellWords({"a", "b c", ""}), "a 'b c' ''");
}

struct Script : testing::Test {
  BatchJob job;
  BatchRequest request;

  Script() {
    request.queue = "slurm";
    job.name = "upscale";
    job.folder = "/data";
    job.work = "/data/out/.tilery/upscale";
    job.script = job.work / "submit/upscale.sh";
    job.log = job.work / "submit/upscale-%j.log";
    job.run = {"/opt/tilery", "run", "/data/my job.yaml"};
    job.worker = {"/opt/tilery", "worker", "--join", "/data/out/.tilery/upscale"};
    job.status = {"/opt/tilery", "status", "/data/out/.tilery/upscale"};
  }
  std::string Text(const std::string& name) {
    return BatchScript(std::string(CarriedTemplate(name)), name, job, request);
  }
  // Whole lines.
  void ExpectLines(const std::string& text, const std::vector<std::string>& lines) {
    for (const std::string& line : lines)
      EXPECT_NE(("\n" + text).find("\n" + line + "\n"), std::string::npos) << line << "\n" << text;
  }
  void ExpectNone(const std::string& text, const std::vector<std::string>& parts) {
    for (const std::string& part : parts) EXPECT_EQ(text.find(part), std::string::npos) << part;
  }
};

TEST_F(Script, OfSlurmTakesWholeNodesUnlessCoresAreNamed) {
  std::string text = Text("slurm");
  ExpectLines(text, {"#SBATCH --job-name=upscale", "#SBATCH --nodes=1", "#SBATCH --exclusive",
                     "#SBATCH --mem=0", "#SBATCH --no-kill", "#SBATCH --requeue",
                     "#SBATCH --signal=B:USR1@120", "/opt/tilery run '/data/my job.yaml' &"});
  ExpectNone(
      text, {"--cpus-per-task=1", "--gpus", "--time=", "--account", "--partition", "{{", "code=0"});

  request.nodes = 3;
  request.cpus = 16;
  request.gpus = 4;
  request.minutes = 90;
  request.grace_s = 300;
  request.account = "lab 7";
  request.partition = "gpu";
  request.memory = "64G";
  request.lines = {"export A=b", "module load cuda"};
  job.failed_is_fine = true;
  text = Text("slurm");
  ExpectLines(text,
              {"#SBATCH --nodes=3", "#SBATCH --cpus-per-task=16", "#SBATCH --gpus-per-node=4",
               "#SBATCH --time=90", "#SBATCH --signal=B:USR1@300", "#SBATCH --account=\"lab 7\"",
               "#SBATCH --partition=gpu", "#SBATCH --mem=64G", "export A=b", "module load cuda"});
  ExpectNone(text, {"--exclusive"});
  EXPECT_NE(text.find("[ \"$code\" != 3 ] || code=0"), std::string::npos);
}

TEST_F(Script, NoGpusIsNoLineOfGpus) {
  request.gpus = 0;
  ExpectNone(Text("slurm"), {"gpus-per-node"});
  ExpectNone(Text("lsf"), {"-gpu"});
}

TEST_F(Script, OfAnArrayHasATaskForEachWorker) {
  request.workers = 32;
  request.gpus = 1;
  const std::string text = Text("slurm_array");
  ExpectLines(text, {"#SBATCH --array=0-31", "#SBATCH --nodes=1", "#SBATCH --gpus-per-node=1"});
  ExpectNone(text, {"--exclusive", "--mem"});
}

TEST_F(Script, OfOtherQueuesSaysTheSameInTheirWords) {
  request.nodes = 2;
  request.minutes = 90;
  request.gpus = 4;
  request.cpus = 8;
  request.memory = "64G";
  ExpectLines(Text("pbs"), {"#PBS -N upscale", "#PBS -l select=2:ncpus=8:ngpus=4:mem=64gb",
                            "#PBS -l walltime=01:30:00", "#PBS -r y", "cd /data || exit 2",
                            "(sleep 5280 && kill -USR1 $$ 2>/dev/null) &"});
  ExpectLines(Text("lsf"), {"#BSUB -J upscale", "#BSUB -n 2", "#BSUB -W 90", "#BSUB -wt 2",
                            "#BSUB -gpu \"num=4/host\"", "#BSUB -Q \"75\""});
  request.minutes = std::nullopt;
  ExpectNone(Text("pbs"), {"walltime", "sleep 5280"});
}

TEST_F(Script, IsAShellScriptWhateverNamesAreLike) {
  job.name = "1 strange; name";
  job.folder = "/it's $here";
  job.work = job.folder / "work \"x\"";
  job.log = job.work / "l%j.log";
  job.worker = {"/opt/tilery", "worker", "--join", job.work.string()};
  request.workers = 2;
  for (const char* name : {"slurm", "slurm_array", "pbs", "lsf"}) {
    const std::string text = Text(name);
    const Ran ran = RunToEnd({.program = "/bin/bash", .arguments = {"-n"}}, text);
    EXPECT_EQ(ran.ended.number, 0) << name << ran.errors;
    EXPECT_NE(text.find("tilery-1_strange__name"), std::string::npos);
  }
}

}  // namespace
}  // namespace tilery
