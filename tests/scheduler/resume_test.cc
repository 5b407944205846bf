#include "scheduler/resume.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <span>

#include "scheduler/attempt_name.h"
#include "scheduler/brick_name.h"
#include "tests/io/expect_error.h"
#include "tests/io/temp_folder.h"
#include "tests/scheduler/coord_support.h"

namespace tilery {
namespace {

class ResumeTest : public testing::Test {
 protected:
  void SetUp() override { Make({{1}, {3}}); }
  void Make(const std::vector<ItemSpec>& specs) {
    plan_ = MakeTestPlan(specs, folder_.path().string());
    // Results that can be read again: raw samples of one byte.
    plan_.params[0].output.dtype = DType::kU8;
    context_ = TestContext(plan_, folder_.path().string());
    ledger_.emplace(folder_.path());
  }
  Resume Plan(Existing existing = Existing::kRefuse, const std::string& numerics = "numerics") {
    return PlanResume(plan_, existing, numerics, context_.scratch, *ledger_);
  }
  // As a finished run leaves it: `count` bytes, recorded.
  void Publish(size_t item, const std::string& content = std::string(16, 'x')) {
    OutputFile file(plan_.items[item].output, "0.1.1");
    file.Write(std::as_bytes(std::span(content)));
    OutputRecord record;
    record.path = plan_.items[item].output;
    record.item_key = OutputKey(plan_.items[item].key, "numerics");
    record.published = true;
    record.file = file.Publish(Durability::kRename);
    ledger_->RecordOutput(record);
    ledger_->Commit();
  }
  void Touch(const std::string& path) {
    const timespec times[2] = {{1000, 0}, {1000, 0}};
    ASSERT_EQ(utimensat(AT_FDCWD, path.c_str(), times, 0), 0);
  }
  std::string MakeBrick(int64_t item, int64_t block, int64_t attempt, int64_t epoch = 0) {
    UnitWork work;
    work.kind = UnitKind::kInfer;
    work.item_key = plan_.items[static_cast<size_t>(item)].key;
    work.block = block;
    work.brick_key = UnitKey(work.item_key, "numerics", block);
    return std::get<Done>(DoUnit(work, context_, 0, attempt, epoch)).file;
  }
  std::string Key(int64_t item, int64_t block) {
    return UnitKey(plan_.items[static_cast<size_t>(item)].key, "numerics", block);
  }

  TempFolder folder_;
  tilery::Plan plan_;
  WorkerContext context_;
  std::optional<Ledger> ledger_;
};

TEST_F(ResumeTest, ClaimsTheOutputsOfAFreshJob) {
  const Resume resume = Plan();
  EXPECT_EQ(resume.items, (std::vector{ItemState::kOpen, ItemState::kOpen}));
  for (const Item& item : plan_.items) {
    const auto record = ledger_->FindOutput(item.output);
    ASSERT_TRUE(record);
    EXPECT_FALSE(record->published);
  }
}

TEST_F(ResumeTest, ARecordedOutputIsUnchanged) {
  Publish(0);
  EXPECT_EQ(Plan().items[0], ItemState::kUnchanged);
}

TEST_F(ResumeTest, ATouchedOutputIsJudgedByItsContentOnce) {
  Publish(0);
  Touch(plan_.items[0].output);
  EXPECT_EQ(Plan().items[0], ItemState::kUnchanged);
  EXPECT_EQ(ledger_->FindOutput(plan_.items[0].output)->file.stamp,
            *StampOf(plan_.items[0].output));
}

TEST_F(ResumeTest, AMissingOrShortenedOutputIsRedone) {
  Publish(0);
  Publish(1);
  std::filesystem::remove(plan_.items[0].output);
  std::filesystem::resize_file(plan_.items[1].output, 5);
  const Resume resume = Plan();
  EXPECT_EQ(resume.items, (std::vector{ItemState::kOpen, ItemState::kOpen}));
  EXPECT_FALSE(ledger_->FindOutput(plan_.items[1].output)->published);
}

TEST_F(ResumeTest, OurOwnResultUnderAnotherKeyIsReplacedWithoutBeingAsked) {
  Publish(0);
  EXPECT_EQ(Plan(Existing::kRefuse, "other numerics").items[0], ItemState::kOpen);
}

TEST_F(ResumeTest, AStrangersFileIsRefusedWithCountNamesAndWaysOutBeforeAnythingIsWritten) {
  Make(std::vector<ItemSpec>(5, {1}));
  for (const Item& item : plan_.items) MakeFile(item.output, "mine");
  const std::string why = ErrorOf(Fault::kUsage, [&] { Plan(); });
  EXPECT_NE(why.find("5 outputs"), std::string::npos) << why;
  for (int i = 0; i < 3; ++i)
    EXPECT_NE(why.find("out" + std::to_string(i)), std::string::npos) << why;
  EXPECT_EQ(why.find("out3"), std::string::npos) << why;
  EXPECT_NE(why.find("skip"), std::string::npos) << why;
  EXPECT_NE(why.find("replace"), std::string::npos) << why;
  EXPECT_FALSE(ledger_->FindOutput(plan_.items[0].output));
}

TEST_F(ResumeTest, AStrangersFileIsKeptOrReplacedAsAsked) {
  MakeFile(plan_.items[0].output, "mine");
  EXPECT_EQ(Plan(Existing::kSkip).items[0], ItemState::kUnchanged);
  EXPECT_FALSE(ledger_->FindOutput(plan_.items[0].output));
  EXPECT_EQ(Plan(Existing::kReplace).items[0], ItemState::kOpen);
  EXPECT_TRUE(ledger_->FindOutput(plan_.items[0].output));
}

TEST_F(ResumeTest, AnEditedOutputThatStillDecodesIsRefused) {
  Publish(0);
  MakeFile(plan_.items[0].output, std::string(16, 'y'));
  const std::string why = ErrorOf(Fault::kUsage, [&] { Plan(); });
  EXPECT_NE(why.find("out0"), std::string::npos) << why;
}

TEST_F(ResumeTest, AFolderInTheWayIsRefused) {
  std::filesystem::create_directory(plan_.items[0].output);
  EXPECT_NE(ErrorOf(Fault::kUsage, [&] { Plan(); }).find("out0"), std::string::npos);
}

TEST_F(ResumeTest, AClaimedPathWithoutARecordIsOurs) {
  Plan();
  MakeFile(plan_.items[0].output, "published, but killed before the commit");
  EXPECT_EQ(Plan().items[0], ItemState::kOpen);
}

TEST_F(ResumeTest, BricksOfTheLedgerAreReused) {
  const std::string file = MakeBrick(1, 0, 1), short_one = MakeBrick(1, 1, 1);
  for (const auto& [block, name] : {std::pair{0, file}, std::pair{1, short_one}}) {
    const auto path = std::filesystem::path(context_.scratch) / name;
    ledger_->RecordBrick(
        {Key(1, block), name, static_cast<int64_t>(std::filesystem::file_size(path)), "h", 1});
  }
  ledger_->RecordBrick({Key(1, 2), "gone.brick", 10, "h", 1});
  ledger_->Commit();
  std::filesystem::resize_file(std::filesystem::path(context_.scratch) / short_one, 20);
  const Resume resume = Plan();
  ASSERT_EQ(resume.bricks.size(), 1u);
  EXPECT_EQ(resume.bricks[0].first, plan_.UnitOf(1, UnitKind::kInfer, 0));
  EXPECT_EQ(resume.adopted_tiles, 0);
  EXPECT_FALSE(ledger_->FindBrick(Key(1, 1)));
  EXPECT_FALSE(ledger_->FindBrick(Key(1, 2)));
}

TEST_F(ResumeTest, OrphansAreAdoptedIfTheyAreWhole) {
  MakeBrick(1, 0, 7);
  const auto damaged = std::filesystem::path(context_.scratch) / MakeBrick(1, 1, 8);
  std::string content = ContentOf(damaged);
  content[content.size() / 2] ^= 1;
  MakeFile(damaged, content);
  const Resume resume = Plan();
  ASSERT_EQ(resume.bricks.size(), 1u);
  EXPECT_EQ(resume.adopted_tiles, 1);
  EXPECT_EQ(ledger_->FindBrick(Key(1, 0))->tiles, 1);
  SweepDead(plan_, "numerics", context_.scratch, *ledger_);
  EXPECT_EQ(EntriesOf(context_.scratch), 1) << "the damaged one is swept";
}

TEST_F(ResumeTest, TheSweepTakesOnlyWhatIsDead) {
  const int64_t epoch = ledger_->epoch();
  const std::string key = HashText("of nobody");
  const auto scratch = std::filesystem::path(context_.scratch);
  const auto name = [&](int64_t e, const char* kind) {
    return key + "." + std::to_string(e) + ".1." + kind;
  };
  MakeFile(scratch / name(epoch - 1, "brick"), "x");
  MakeFile(scratch / name(epoch - 1, "stage"), "x");
  MakeFile(scratch / (key + "." + std::to_string(epoch - 1) + ".list"), "x");
  const auto temporary = [](const std::string& work, int64_t e) {
    return ".tilery-" + AttemptName(work, 3, e, 4) + ".part";
  };
  const std::string work = ledger_->work();
  for (const int64_t e : {int64_t{0}, epoch, epoch + 5}) {  // the last of a work folder before it
    MakeFile(scratch / temporary(work, e), "x");
    MakeFile(folder_ / temporary(work, e), "x");
  }
  const std::filesystem::path others = folder_ / temporary(work + "-of-another-job", 0);
  MakeFile(others, "maybe alive");
  MakeFile(folder_ / ".tilery-small-elsewhere-1-0.part", "x");
  MakeFile(scratch / name(epoch, "brick"), "alive");
  MakeFile(scratch / "somebody.txt", "not ours");
  ledger_->RecordBrick({key, name(epoch - 1, "brick"), 1, "h", 1});
  ledger_->Commit();
  SweepDead(plan_, "numerics", context_.scratch, *ledger_);
  EXPECT_EQ(EntriesOf(scratch), 2);
  for (const int64_t e : {int64_t{0}, epoch, epoch + 5}) {
    EXPECT_FALSE(std::filesystem::exists(folder_ / temporary(work, e))) << e;
  }
  EXPECT_FALSE(std::filesystem::exists(folder_ / ".tilery-small-elsewhere-1-0.part"));
  EXPECT_FALSE(ledger_->FindBrick(key));
  SweepDead(plan_, "numerics", context_.scratch, *ledger_, true);
  EXPECT_EQ(EntriesOf(scratch), 1);
  EXPECT_TRUE(std::filesystem::exists(scratch / "somebody.txt"));
  EXPECT_TRUE(std::filesystem::exists(others));
}

// No file has the content that its record names: whoever reads them finds nothing unchanged.
TEST_F(ResumeTest, FinishedItemsAreRecognisedByTheirStampsAlone) {
  Make(std::vector<ItemSpec>(10000, {1}));
  for (size_t i = 0; i < plan_.items.size(); ++i) {
    MakeFile(plan_.items[i].output, "x");
    OutputRecord record;
    record.path = plan_.items[i].output;
    record.item_key = OutputKey(plan_.items[i].key, "numerics");
    record.published = true;
    record.file = {1, "h", *StampOf(record.path)};
    ledger_->RecordOutput(record);
  }
  ledger_->Commit();
  const Resume resume = Plan();
  EXPECT_EQ(std::count(resume.items.begin(), resume.items.end(), ItemState::kUnchanged), 10000);
}

TEST(ScratchName, TakesOnlyItsOwnForms) {
  const std::string key(32, 'a');
  EXPECT_EQ(ParseScratchName(key + ".12.3.brick")->epoch, 12);
  EXPECT_EQ(ParseScratchName(key + ".12.list")->kind, "list");
  for (const std::string& name :
       {key + ".12.brick", key + ".x.3.brick", key.substr(1) + ".12.3.brick", key + ".12.3.png",
        key + ".-1.3.brick", std::string("...."), std::string()}) {
    EXPECT_FALSE(ParseScratchName(name)) << name;
  }
}

}  // namespace
}  // namespace tilery
