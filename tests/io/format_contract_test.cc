// What every container must do, run over each with all it claims to hold.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <thread>

#include "io/exif_tree.h"
#include "tests/io/expect_error.h"
#include "tests/io/format_helpers.h"

namespace tilery {
namespace {

constexpr DType kTypes[] = {DType::kU8,  DType::kI8,  DType::kU16, DType::kI16, DType::kU32,
                            DType::kI32, DType::kF16, DType::kF32, DType::kF64};

// All (dtype, channels, alpha) that the format of this extension says it holds.
std::vector<Header> Claims(const std::string& extension, const Index& picture,
                           const Index& volume) {
  const std::string format = FormatOfExtension("x" + extension);
  std::vector<Header> claims;
  for (const DType dtype : kTypes) {
    for (int32_t channels = 1; channels <= 5; ++channels) {
      for (const AlphaKind alpha :
           {AlphaKind::kNone, AlphaKind::kStraight, AlphaKind::kAssociated}) {
        for (const Index& shape : {picture, volume}) {
          const Header header{format, dtype,           uint8_t(shape[0] > 1 ? 3 : 2),
                              alpha,  Access::kRandom, channels,
                              shape};
          if (WhyNot(format, header).empty()) claims.push_back(header);
        }
      }
    }
  }
  return claims;
}

bool KeepsAlpha(const std::string& format) { return format == "png" || format == "tiff"; }
bool IsLossy(const std::string& format) { return format == "jpeg"; }

// What a camera writes: texts, numbers in a directory of their own, a place.
std::string CameraExif(int orientation) {
  const auto text = [](uint16_t tag, const std::string& value) {
    return ExifField{tag, 2, static_cast<uint32_t>(value.size() + 1), value + '\0'};
  };
  ExifTree tree;
  tree.main = {text(271, "Maker"), {274, 3, 1, {static_cast<char>(orientation), 0}}};
  tree.exif = {{33434, 5, 1, std::string("\1\0\0\0\x7D\0\0\0", 8)},
               text(36867, "2001:02:03 04:05:06")};
  tree.gps = {text(1, "N")};
  tree.interoperability = {text(1, "R98")};
  return BuildExif(tree);
}

class EveryFormat : public testing::TestWithParam<std::string> {
 protected:
  std::filesystem::path File(const std::string& stem = "a") const {
    return folder_ / (stem + GetParam());
  }
  std::vector<Header> SomeClaims() const {
    std::vector<Header> all = Claims(GetParam(), {1, 23, 31}, {5, 11, 13});
    std::vector<Header> some;
    for (size_t i = 0; i < all.size(); i += 1 + all.size() / 6) some.push_back(all[i]);
    return some;
  }

  TempFolder folder_;
};

TEST_P(EveryFormat, ReturnsAllThatItClaimsToHold) {
  for (const Header& header : Claims(GetParam(), {1, 23, 31}, {5, 11, 13})) {
    SCOPED_TRACE(std::string(DTypeName(header.dtype)) + " " + std::to_string(header.channels) +
                 " channels, alpha " + std::to_string(static_cast<int>(header.alpha)));
    const Picture wanted = MakePicture(header, 3, IsLossy(header.format));
    WritePicture(File(), wanted, 4);
    Picture got = ReadPicture(File(), header);
    EXPECT_EQ(got.header.format, header.format);
    EXPECT_EQ(got.header.dtype, header.dtype);
    EXPECT_EQ(got.header.channels, header.channels);
    EXPECT_EQ(got.header.shape, header.shape);
    EXPECT_EQ(got.header.alpha, KeepsAlpha(header.format) ? header.alpha : AlphaKind::kNone);
    if (!IsLossy(header.format)) {
      ASSERT_EQ(got.samples, wanted.samples);
      continue;
    }
    for (size_t i = 0; i < got.samples.size(); ++i) {
      ASSERT_NEAR(static_cast<int>(got.samples[i]), static_cast<int>(wanted.samples[i]), 24);
    }
  }
}

TEST_P(EveryFormat, RegionsEqualTheWhole) {
  std::minstd_rand random(5);
  for (const Header& header : SomeClaims()) {
    WritePicture(File(), MakePicture(header, 9));
    Picture whole = ReadPicture(File(), header);
    const auto reader = Open(File(), header);
    const bool in_order = reader->header().access == Access::kRows;
    const Index n = header.shape;
    int64_t row = 0;
    for (int i = 0; i < 40; ++i) {
      const auto below = [&](int64_t most) { return static_cast<int64_t>(random()) % most; };
      Box box;
      for (size_t axis = 0; axis < 3; ++axis) {
        box.begin[axis] = below(n[axis]);
        box.end[axis] = box.begin[axis] + 1 + below(n[axis] - box.begin[axis]);
      }
      if (in_order) {  // some rows of one plane, after leaving some out
        row += below(4);
        if (row >= n[0] * n[1]) break;
        const int64_t rows = 1 + below(std::min<int64_t>(5, n[1] - row % n[1]));
        box = {{row / n[1], row % n[1], 0}, {row / n[1] + 1, row % n[1] + rows, n[2]}};
        row += rows;
      }
      // Once into a dense target, once into channel planes with gaps between rows.
      Picture part = MakePicture(header, 11);
      part.header.shape = box.shape();
      part.samples.resize(SampleBytes(header, box.shape()));
      View target = part.view();
      std::vector<std::byte> gappy(part.samples.size() * 3);
      if (i % 2 == 1) {
        target = DenseView(gappy.data(), header.dtype, header.channels,
                           {box.extent(0), box.extent(1), box.extent(2) * 3}, Layout::kPlanar);
        target.shape = box.shape();
        target.stride[3] *= 3;
      }
      reader->Read(box, target);
      CopyView(target, part.view());
      Picture wanted = part;
      CopyView(whole.view().Crop(box), wanted.view());
      ASSERT_EQ(part.samples, wanted.samples) << ToString(box);
    }
    reader->CheckEnd();
  }
}

TEST_P(EveryFormat, BandsOfAnySizeGiveTheSamePicture) {
  const Header header = SomeClaims().front();
  WritePicture(File(), MakePicture(header, 2));
  const Picture whole = ReadPicture(File(), header);
  for (const int64_t rows : {1, 2, 3, 7, 100}) {
    EXPECT_EQ(ReadPicture(*Open(File(), header), rows).samples, whole.samples) << rows << " rows";
  }
}

TEST_P(EveryFormat, BytesDependOnNeitherBandsNorThreads) {
  for (Header header : SomeClaims()) {
    // Some 3.5 MB: large enough for several blocks and strips.
    header.shape[2] = 301;
    const auto row_bytes = static_cast<int64_t>(SampleBytes(header, {1, 1, header.shape[2]}));
    header.shape[1] = 3500000 / row_bytes / header.shape[0];
    const Picture picture = MakePicture(header, 4, true);
    WritePicture(File("once"), picture);
    const std::string once = ReadSmallFile(File("once"));
    for (const auto& [rows, threads] :
         {std::pair{0, 7}, {1, 1}, {64, 7}, {333, 7}, {333, 1}, {64, 0}}) {
      WritePicture(File("again"), picture, rows, threads);
      ASSERT_TRUE(ReadSmallFile(File("again")) == once)
          << rows << " rows, " << threads << " threads";
    }
  }
}

TEST_P(EveryFormat, KeepsTheMetadataThatItDoesNotCallALoss) {
  Header header = Claims(GetParam(), {1, 23, 31}, {5, 11, 13}).front();
  for (const Header& claim : Claims(GetParam(), {1, 23, 31}, {5, 11, 13})) {
    if (claim.channels == 3 && claim.alpha == AlphaKind::kNone) header = claim;
  }
  Picture picture = MakePicture(header);
  Metadata& wanted = picture.metadata;
  wanted.icc = ProfileOf(header.channels == 3 ? "RGB " : "GRAY", 70000);
  wanted.exif = CameraExif(6);
  wanted.orientation = 6;
  wanted.resolution = {300, 150};
  wanted.resolution_unit = 2;
  wanted.description = "a field of barley";
  wanted.xmp = "<x:xmpmeta/>";
  wanted.iptc = IptcOf("barley");
  const auto losses = Losses(header.format, header, wanted);
  const auto lost = [&](const std::string& word) {
    return std::any_of(losses.begin(), losses.end(),
                       [&](const std::string& loss) { return loss.find(word) == 0; });
  };
  WritePicture(File(), picture);
  const Metadata got = ReadPicture(File(), header).metadata;
  EXPECT_EQ(got.icc == wanted.icc, !lost("ICC profile"));
  EXPECT_EQ(got.exif == wanted.exif, !lost("EXIF"));
  EXPECT_EQ(got.orientation == wanted.orientation, !lost("orientation"));
  EXPECT_EQ(got.description == wanted.description, !lost("description"));
  EXPECT_EQ(got.xmp == wanted.xmp, !lost("XMP"));
  EXPECT_EQ(got.iptc == wanted.iptc, !lost("IPTC"));
  ASSERT_EQ(got.resolution.has_value(), !lost("resolution"));
  if (got.resolution) {
    const double to_inch = got.resolution_unit == 1 ? 0.0254 : got.resolution_unit == 3 ? 2.54 : 1;
    EXPECT_NEAR((*got.resolution)[0] * to_inch, 300, 0.02);
    EXPECT_NEAR((*got.resolution)[1] * to_inch, 150, 0.02);
  }
}

TEST_P(EveryFormat, SaysWhichMetadataItLoses) {
  const Header header = SomeClaims().front();
  EXPECT_TRUE(Losses(header.format, header, {}).empty());
  Metadata affine;
  affine.nifti = std::string(352, 'x');
  EXPECT_EQ(Losses(header.format, header, affine).empty(), header.format == "nifti");
}

TEST_P(EveryFormat, ACutFileIsAnErrorOrWhole) {
  for (const Header& header : SomeClaims()) {
    Picture picture = MakePicture(header, 6);
    picture.metadata.exif = ExifOfOrientation(3);
    picture.metadata.orientation = 3;
    picture.metadata.xmp = "<x:xmpmeta/>";
    picture.metadata.iptc = IptcOf("barley");
    WritePicture(File(), picture);
    const Picture whole = ReadPicture(File(), header);
    const std::string content = ContentOf(File());
    int errors = 0;
    for (size_t keep = 0; keep < content.size();
         keep += 1 + (keep > 300 ? content.size() / 97 : 0)) {
      PutFile(File("cut"), content.substr(0, keep));
      try {
        EXPECT_EQ(ReadPicture(File("cut"), header).samples, whole.samples) << keep << " bytes left";
      } catch (const Error& error) {
        ++errors;
        EXPECT_EQ(error.fault(), Fault::kInput) << error.what();
        EXPECT_NE(std::string(error.what()).find("cut"), std::string::npos) << error.what();
      }
    }
    EXPECT_GT(errors, 10);
    PutFile(File("cut"), content.substr(0, content.size() / 2));
    ErrorOf(Fault::kInput, [&] { ReadPicture(File("cut"), header); });
  }
}

TEST_P(EveryFormat, DamagedBytesNeverDoWorseThanAnError) {
  std::minstd_rand random(8);
  for (const Header& header : SomeClaims()) {
    Picture picture = MakePicture(header, 6);
    picture.metadata.xmp = "<x:xmpmeta/>";
    picture.metadata.iptc = IptcOf("barley");
    WritePicture(File(), picture);
    const std::string content = ContentOf(File());
    for (int i = 0; i < 300; ++i) {
      std::string damaged = content;
      // Mostly in the first bytes, where headers are.
      const size_t most = i % 3 == 0 ? damaged.size() : std::min<size_t>(damaged.size(), 400);
      damaged[random() % most] ^= static_cast<char>(1 << random() % 8);
      PutFile(File("bad"), damaged);
      try {
        const auto reader = Open(File("bad"), header);
        if (SampleBytes(reader->header(), {1, 1, reader->header().shape[2]}) > 1 << 24) continue;
        if (Product(reader->header().shape) < 1 << 20) ReadPicture(*reader);
      } catch (const Error& error) {
        EXPECT_EQ(error.fault(), Fault::kInput) << error.what();
      }
    }
  }
}

TEST_P(EveryFormat, AFullDiskIsAnErrorAtTheWrite) {
  Header header = SomeClaims().front();
  header.shape[1] = 200;
  WritePicture(File("whole"), MakePicture(header, 3));
  const auto size = static_cast<rlim_t>(std::filesystem::file_size(File("whole")));
  std::filesystem::remove(File("whole"));
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  for (const rlim_t most : {rlim_t{0}, rlim_t{40}, size / 2, size - 1}) {
    const rlimit limit{most, before.rlim_max};
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
    const std::string message =
        ErrorOf(Fault::kOutput, [&] { WritePicture(File("full"), MakePicture(header, 3), 5); });
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
    EXPECT_NE(message.find("full" + GetParam()), std::string::npos) << message;
    EXPECT_EQ(EntriesOf(folder_.path()), 0) << "a file was left behind";
  }
  std::signal(SIGXFSZ, old_handler);
}

TEST_P(EveryFormat, OpensAndClosesWithoutLeavingDescriptors) {
  const Header header = SomeClaims().front();
  WritePicture(File(), MakePicture(header, 3));
  PutFile(File("cut"), ContentOf(File()).substr(0, 60));
  const auto open_files = [] { return EntriesOf("/proc/self/fd"); };
  const int before = open_files();
  for (int i = 0; i < 20; ++i) {
    ReadPicture(File(), header);
    Open(File(), header);
    ErrorOf(Fault::kInput, [&] { ReadPicture(File("cut"), header); });
  }
  EXPECT_EQ(open_files(), before);
}

TEST_P(EveryFormat, ServesSeveralThreadsWhereAccessIsRandom) {
  for (Header header : SomeClaims()) {
    header.shape[1] = 400;
    WritePicture(File(), MakePicture(header, 12));
    Picture whole = ReadPicture(File(), header);
    const auto reader = Open(File(), header);
    if (reader->header().access != Access::kRandom) continue;
    std::vector<int> equal(4, 0);
    {
      std::vector<std::jthread> threads;
      for (int t = 0; t < 4; ++t) {
        threads.emplace_back([&, t] {
          const Box box{{0, 17 * t, t}, {1, 17 * t + 211, header.shape[2]}};
          Picture part = MakePicture(header);
          part.header.shape = box.shape();
          part.samples.resize(SampleBytes(header, box.shape()));
          Picture wanted = part;
          CopyView(whole.view().Crop(box), wanted.view());
          for (int i = 0; i < 10; ++i) {
            reader->Read(box, part.view());
            equal[static_cast<size_t>(t)] += part.samples == wanted.samples;
          }
        });
      }
    }
    EXPECT_EQ(equal, std::vector<int>(4, 10));
  }
}

TEST_P(EveryFormat, BandsOutOfOrderAreRefused) {
  const Header header = SomeClaims().front();
  Picture picture = MakePicture(header);
  OutputFile file(File(), "test");
  const auto writer = CreateWriter(file, {header, {}});
  const Box second{{0, 2, 0}, {1, 4, header.shape[2]}};
  ErrorOf(Fault::kInternal, [&] { writer->Write(second, picture.view().Crop(second)); });
  const Box narrow{{0, 0, 0}, {1, 2, header.shape[2] - 1}};
  ErrorOf(Fault::kInternal, [&] { writer->Write(narrow, picture.view().Crop(narrow)); });
  ErrorOf(Fault::kInternal, [&] { writer->Finish(); });
}

INSTANTIATE_TEST_SUITE_P(Formats, EveryFormat,
                         testing::Values(".png", ".jpg", ".tif", ".npy", ".raw", ".nii", ".nii.gz"),
                         [](const auto& info) {
                           std::string name = info.param.substr(1);
                           std::replace(name.begin(), name.end(), '.', '_');
                           return name;
                         });

}  // namespace
}  // namespace tilery
