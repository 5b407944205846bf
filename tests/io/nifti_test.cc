#include "io/nifti.h"

#include <gtest/gtest.h>
#include <zlib.h>

#include <cmath>
#include <limits>

#include "io/byte_order.h"
#include "tests/io/expect_error.h"
#include "tests/io/format_helpers.h"

namespace tilery {
namespace {

constexpr Index kShape{5, 9, 7};  // z, y, x
constexpr double kOblique[12] = {.12084686, -.992671192, 0, 112.3619, .992671192, .12084686,
                                 0,         -142.911224, 0, 0,        3,          -129};

// The first voxel is -100, counting on along x first.
int16_t Value(int64_t z, int64_t y, int64_t x) {
  return static_cast<int16_t>((z * 9 + y) * 7 + x - 100);
}

struct NiftiSpec {
  bool big_endian = false;
  double slope = 1, inter = 0;
  int time_points = 0;
  std::string extensions = {};  // in file order, after the four extender bytes
};

// A NIfTI-1 file of i2, by hand.
std::string Nifti1(const NiftiSpec& spec) {
  const bool big = spec.big_endian;
  std::string file(352, '\0');
  const auto i16 = [&](size_t at, int value) {
    Store(file.data() + at, static_cast<int16_t>(value), big);
  };
  const auto f32 = [&](size_t at, double value) {
    Store(file.data() + at, static_cast<float>(value), big);
  };
  Store<int32_t>(file.data(), 348, big);
  const int dims[8] = {spec.time_points > 0 ? 4 : 3,  7, 9, 5,
                       std::max(1, spec.time_points), 1, 1, 1};
  for (size_t i = 0; i < 8; ++i) i16(40 + 2 * i, dims[i]);
  i16(70, 4);
  i16(72, 16);
  const double pixdim[4] = {1, 1, 1, 3};
  for (size_t i = 0; i < 4; ++i) f32(76 + 4 * i, pixdim[i]);
  f32(108, static_cast<double>(352 + spec.extensions.size()));
  f32(112, spec.slope);
  f32(116, spec.inter);
  file[123] = 2;  // millimetres
  file.replace(148, 7, "phantom");
  i16(254, 1);
  for (size_t i = 0; i < 12; ++i) f32(280 + 4 * i, kOblique[i]);
  file.replace(344, 3, "n+1");
  if (!spec.extensions.empty()) file[348] = 1;
  file += spec.extensions;
  for (int t = 0; t < std::max(1, spec.time_points); ++t)
    for (int64_t z = 0; z < 5; ++z)
      for (int64_t y = 0; y < 9; ++y)
        for (int64_t x = 0; x < 7; ++x) {
          char bytes[2];
          Store(bytes, Value(z, y, x), big);
          file.append(bytes, 2);
        }
  return file;
}

std::string Gzip(const std::string& bytes) {
  z_stream stream{};
  deflateInit2(&stream, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY);
  std::string out(deflateBound(&stream, bytes.size()) + 64, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  deflate(&stream, Z_FINISH);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

class NiftiTest : public testing::Test {
 protected:
  Picture Read(const std::string& content, const std::string& name = "v.nii") {
    PutFile(folder_ / name, content);
    return ReadPicture(folder_ / name);
  }
  std::string Refusal(const std::string& content, const std::string& name = "v.nii") {
    return ErrorOf(Fault::kInput, [&] { Read(content, name); });
  }
  static void ExpectValues(Picture& got) {
    ASSERT_EQ(got.header.shape, kShape);
    ASSERT_EQ(got.header.dtype, DType::kI16);
    for (int64_t z = 0; z < 5; ++z)
      for (int64_t y = 0; y < 9; ++y)
        for (int64_t x = 0; x < 7; ++x) ASSERT_EQ(got.at<int16_t>(0, z, y, x), Value(z, y, x));
  }
  TempFolder folder_;
};

TEST_F(NiftiTest, ByteOrderAndCompressionGiveTheSameVoxels) {
  for (const bool big : {false, true}) {
    Picture plain = Read(Nifti1({big}));
    ExpectValues(plain);
    EXPECT_EQ(plain.header.access, Access::kRandom);
    EXPECT_EQ(plain.header.dims, 3);
    Picture packed = Read(Gzip(Nifti1({big})), "v.nii.gz");
    ExpectValues(packed);
    EXPECT_EQ(packed.header.access, Access::kRows);
    EXPECT_EQ(packed.metadata.nifti, plain.metadata.nifti);
  }
}

TEST_F(NiftiTest, ContentDecidesAndNotTheName) {
  Picture got = Read(Gzip(Nifti1({})), "v.nii");
  ExpectValues(got);
}

TEST_F(NiftiTest, MembersOfAGzipFileAreJoined) {
  const std::string file = Nifti1({});
  Picture got = Read(Gzip(file.substr(0, 500)) + Gzip(file.substr(500)), "v.nii.gz");
  ExpectValues(got);
}

TEST_F(NiftiTest, SlopeAndIntercept) {
  Picture got = Read(Nifti1({true, .5, -1024}));
  EXPECT_EQ(got.header.dtype, DType::kF32);
  EXPECT_EQ(got.at<float>(0, 0, 0, 0), -1074.f);
  EXPECT_EQ(got.at<float>(0, 4, 8, 6), .5f * 214 - 1024);
  // Written, the header describes what is written: real values, scaled once and never twice.
  for (const char* name : {"w.nii", "w.nii.gz"}) {
    WritePicture(folder_ / name, got);
    Picture again = ReadPicture(folder_ / name);
    EXPECT_EQ(again.header.dtype, DType::kF32);
    EXPECT_EQ(again.at<float>(0, 0, 0, 0), -1074.f);
  }
}

TEST_F(NiftiTest, ASlopeOfZeroOrNoNumberMeansNoScaling) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  for (const double slope : {0., kNan, 1.}) {
    Picture got = Read(Nifti1({false, slope, slope == 1 ? 0. : -1024.}));
    ExpectValues(got);
  }
}

TEST_F(NiftiTest, RegionsOfScaledVolumesAreRight) {
  PutFile(folder_ / "v.nii", Nifti1({true, 2, 1}));
  const auto reader = OpenReader(folder_ / "v.nii");
  const Box box{{1, 2, 3}, {4, 8, 6}};
  std::vector<float> samples(static_cast<size_t>(box.voxels()));
  reader->Read(box, DenseView(reinterpret_cast<std::byte*>(samples.data()), DType::kF32, 1,
                              box.shape(), Layout::kPlanar));
  EXPECT_EQ(samples.front(), 2.f * Value(1, 2, 3) + 1);
  EXPECT_EQ(samples.back(), 2.f * Value(3, 7, 5) + 1);
}

TEST_F(NiftiTest, TheHeaderSurvives) {
  for (const bool big : {false, true}) {
    const Picture got = Read(Nifti1({big}));
    for (const char* name : {"w.nii", "w.nii.gz"}) {
      WritePicture(folder_ / name, got);
      const Metadata again = ReadPicture(folder_ / name).metadata;
      EXPECT_EQ(again.nifti, got.metadata.nifti);
    }
    const NiftiHeader header = SplitNifti(got.metadata.nifti).header;
    for (int i = 0; i < 12; ++i)
      EXPECT_FLOAT_EQ(static_cast<float>(header.Get(Nifti::kSrow, i)),
                      static_cast<float>(kOblique[i]));
    EXPECT_EQ(header.Get(Nifti::kSformCode), 1);
    EXPECT_EQ(header.Get(Nifti::kUnits), 2);
    EXPECT_EQ(header.bytes().substr(148, 7), "phantom");
  }
}

TEST_F(NiftiTest, ExtensionsSurviveInHostOrder) {
  for (const bool big : {false, true}) {
    std::string extension(32, 'e');
    Store<int32_t>(extension.data(), 32, big);
    Store<int32_t>(extension.data() + 4, 6, big);
    NiftiSpec spec{big};
    spec.extensions = extension;
    Picture got = Read(Nifti1(spec));
    ExpectValues(got);
    WritePicture(folder_ / "w.nii", got);
    Picture again = ReadPicture(folder_ / "w.nii");
    ExpectValues(again);
    const std::string kept = SplitNifti(again.metadata.nifti).extensions;
    ASSERT_EQ(kept.size(), 36u);
    EXPECT_EQ(LoadLittle<int32_t>(kept.data() + 4), 32);
    EXPECT_EQ(LoadLittle<int32_t>(kept.data() + 8), 6);
    EXPECT_EQ(kept.substr(12), std::string(24, 'e'));
  }
}

TEST_F(NiftiTest, AFinerGridKeepsTheOuterCorner) {
  const Picture got = Read(Nifti1({}));
  const Rational four{4, 1};
  const Metadata scaled = ScaleMetadata(got.metadata, {four, four, four}, {20, 36, 28});
  const NiftiHeader header = SplitNifti(scaled.nifti).header;
  for (int row = 0; row < 3; ++row) {
    double origin = kOblique[4 * row + 3];
    for (int axis = 0; axis < 3; ++axis) {
      EXPECT_NEAR(header.Get(Nifti::kSrow, 4 * row + axis), kOblique[4 * row + axis] / 4, 1e-5);
      origin += kOblique[4 * row + axis] * -.375;
    }
    EXPECT_NEAR(header.Get(Nifti::kSrow, 4 * row + 3), origin, 1e-4);
    // The corner half a voxel before the first centre.
    const auto corner = [row](const double* affine) {
      return affine[4 * row + 3] -
             (affine[4 * row] + affine[4 * row + 1] + affine[4 * row + 2]) / 2;
    };
    double now[12];
    for (int i = 0; i < 12; ++i) now[i] = header.Get(Nifti::kSrow, i);
    EXPECT_NEAR(corner(now), corner(kOblique), 1e-4);
  }
  EXPECT_FLOAT_EQ(static_cast<float>(header.Get(Nifti::kPixdim, 1)), .25f);
  EXPECT_FLOAT_EQ(static_cast<float>(header.Get(Nifti::kPixdim, 3)), .75f);
}

TEST_F(NiftiTest, SliceTimesGoWithTheSlices) {
  NiftiHeader header;
  header.Set(Nifti::kSliceCode, 0, 3);
  header.Set(Nifti::kSliceEnd, 0, 4);
  Metadata metadata;
  metadata.nifti = header.bytes();
  const Rational one, two{2, 1};
  const auto code = [&](const Scale& scale) {
    return SplitNifti(ScaleMetadata(metadata, scale, {5, 9, 7}).nifti)
        .header.Get(Nifti::kSliceCode);
  };
  EXPECT_EQ(code({one, two, two}), 3);
  EXPECT_EQ(code({two, one, one}), 0);
}

TEST_F(NiftiTest, TheQuaternionsOffsetMovesLikeTheAffine) {
  NiftiHeader header;
  const double half = std::sqrt(.5);  // a quarter turn around z: x to y, y to -x
  header.Set(Nifti::kQuatern, 2, half);
  header.Set(Nifti::kQformCode, 0, 1);
  header.Set(Nifti::kPixdim, 0, -1);  // the third axis points the other way
  const double pixels[3] = {2, 3, 5};
  for (int axis = 0; axis < 3; ++axis) header.Set(Nifti::kPixdim, axis + 1, pixels[axis]);
  Metadata metadata;
  metadata.nifti = header.bytes();
  const Metadata scaled =
      ScaleMetadata(metadata, {Rational{1, 2}, Rational{4, 1}, Rational{2, 1}}, {1, 4, 2});
  const NiftiHeader got = SplitNifti(scaled.nifti).header;
  // Shifts along x, y, z: (1/2 - 1)/2, (1/4 - 1)/2, (2 - 1)/2 voxels.
  EXPECT_NEAR(got.Get(Nifti::kQoffset, 0), -(3 * -.375), 1e-6);
  EXPECT_NEAR(got.Get(Nifti::kQoffset, 1), 2 * -.25, 1e-6);
  EXPECT_NEAR(got.Get(Nifti::kQoffset, 2), -5 * .5, 1e-6);
  EXPECT_FLOAT_EQ(static_cast<float>(got.Get(Nifti::kPixdim, 2)), .75f);
  EXPECT_FLOAT_EQ(static_cast<float>(got.Get(Nifti::kPixdim, 3)), 10.f);
  EXPECT_EQ(got.Get(Nifti::kPixdim, 0), -1);
}

TEST_F(NiftiTest, ACutGzipFileIsAnErrorWithBytesExpectedAndFound) {
  Picture noise =
      MakePicture({"nifti", DType::kI16, 3, AlphaKind::kNone, Access::kRandom, 1, {32, 64, 64}});
  WritePicture(folder_ / "n.nii.gz", noise);
  const std::string whole = ContentOf(folder_ / "n.nii.gz");
  const std::string message = Refusal(whole.substr(0, whole.size() / 2), "v.nii.gz");
  EXPECT_NE(message.find("ends too early"), std::string::npos) << message;
  EXPECT_NE(message.find(std::to_string(whole.size() / 2)), std::string::npos) << message;
  // Cut between members: whole gzip data of too few voxels.
  const std::string file = Nifti1({});
  const std::string fewer = Refusal(Gzip(file.substr(0, 700)), "v.nii.gz");
  EXPECT_NE(fewer.find("982"), std::string::npos) << fewer;
  EXPECT_NE(fewer.find("700"), std::string::npos) << fewer;
  Refusal(Gzip(file.substr(0, 348)), "v.nii.gz");
  EXPECT_NE(Refusal(Gzip(file + "x"), "v.nii.gz").find("more than the 982 bytes"),
            std::string::npos);
}

TEST_F(NiftiTest, AHeaderThatPromisesMoreThanTheFileCanHoldIsRefusedAtOnce) {
  std::string file = Nifti1({});
  for (const size_t at : {42, 44, 46}) Store<int16_t>(file.data() + at, 20000, false);
  PutFile(folder_ / "v.nii.gz", Gzip(file));
  const std::string message = ErrorOf(Fault::kInput, [&] { OpenReader(folder_ / "v.nii.gz"); });
  EXPECT_NE(message.find("16000000000000 bytes"), std::string::npos) << message;
}

TEST_F(NiftiTest, AFlippedChecksumOrLengthIsAnError) {
  const std::string whole = Gzip(Nifti1({}));
  for (const size_t back : {1, 4, 5, 8}) {
    std::string bad = whole;
    bad[bad.size() - back] ^= 0x40;
    const std::string message = Refusal(bad, "v.nii.gz");
    EXPECT_NE(message.find("v.nii.gz"), std::string::npos) << message;
  }
}

TEST_F(NiftiTest, APlainFileOfTheWrongSizeIsAnErrorWithBothSizes) {
  const std::string whole = Nifti1({});
  for (const std::string& bad : {whole.substr(0, 981), whole + "x", whole.substr(0, 352)}) {
    const std::string message = Refusal(bad);
    EXPECT_NE(message.find("982"), std::string::npos) << message;
    EXPECT_NE(message.find(std::to_string(bad.size())), std::string::npos) << message;
  }
}

TEST_F(NiftiTest, OneTimePointIsAVolumeAndMoreAreRefused) {
  NiftiSpec spec;
  spec.time_points = 1;
  Picture got = Read(Nifti1(spec));
  ExpectValues(got);
  WritePicture(folder_ / "w.nii", got);
  EXPECT_EQ(SplitNifti(ReadPicture(folder_ / "w.nii").metadata.nifti).header.Get(Nifti::kDim, 0),
            4);
  spec.time_points = 6;
  EXPECT_NE(Refusal(Nifti1(spec)).find("6 time points"), std::string::npos);
}

TEST_F(NiftiTest, OtherTypesAndFilePairsAreRefused) {
  std::string complex = Nifti1({});
  Store<int16_t>(complex.data() + 70, 32, false);
  EXPECT_NE(Refusal(complex).find("data type 32"), std::string::npos);
  std::string pair = Nifti1({});
  pair.replace(344, 3, "ni1");
  EXPECT_NE(Refusal(pair).find("two files"), std::string::npos);
}

TEST_F(NiftiTest, LongAxesAreWrittenAsVersionTwo) {
  Picture picture =
      MakePicture({"nifti", DType::kU8, 3, AlphaKind::kNone, Access::kRandom, 1, {1, 2, 40000}});
  picture.metadata.nifti = Read(Nifti1({})).metadata.nifti;
  WritePicture(folder_ / "w.nii", picture);
  Picture got = ReadPicture(folder_ / "w.nii");
  EXPECT_EQ(got.header.shape, (Index{1, 2, 40000}));
  EXPECT_EQ(got.samples, picture.samples);
  const NiftiHeader header = SplitNifti(got.metadata.nifti).header;
  EXPECT_EQ(header.version(), 2);
  EXPECT_FLOAT_EQ(static_cast<float>(header.Get(Nifti::kSrow, 3)), static_cast<float>(kOblique[3]));
  EXPECT_EQ(header.bytes().substr(240, 7), "phantom");
  // Read as version 2, it is written so again.
  WritePicture(folder_ / "x.nii", got);
  EXPECT_EQ(ReadPicture(folder_ / "x.nii").metadata.nifti, got.metadata.nifti);
}

TEST_F(NiftiTest, VersionTwoInTheOtherByteOrderReadsTheSame) {
  Picture picture =
      MakePicture({"nifti", DType::kU8, 3, AlphaKind::kNone, Access::kRandom, 1, {1, 2, 40000}});
  picture.metadata.nifti = Read(Nifti1({})).metadata.nifti;
  WritePicture(folder_ / "w.nii", picture);
  const Picture little = ReadPicture(folder_ / "w.nii");
  std::string file = ContentOf(folder_ / "w.nii");
  // Swapping is its own inverse, once sizeof_hdr is known to be in the wrong order.
  const NiftiHeader swapped = NiftiHeader::FromFile(file.substr(0, 540), true);
  file.replace(0, 540, swapped.bytes());
  Picture big = Read(file);
  EXPECT_EQ(big.samples, little.samples);
  EXPECT_EQ(big.metadata.nifti, little.metadata.nifti);
}

TEST_F(NiftiTest, ADisplayRangeGoesWithTheValuesItWasFor) {
  std::string file = Nifti1({});
  Store<float>(file.data() + 124, 80, false);
  Picture got = Read(file);
  WritePicture(folder_ / "same.nii", got);
  EXPECT_EQ(SplitNifti(ReadPicture(folder_ / "same.nii").metadata.nifti).header.Get(Nifti::kCalMax),
            80);
  Picture labels =
      MakePicture({"nifti", DType::kU8, 3, AlphaKind::kNone, Access::kRandom, 1, kShape});
  labels.metadata = got.metadata;
  WritePicture(folder_ / "labels.nii", labels);
  EXPECT_EQ(
      SplitNifti(ReadPicture(folder_ / "labels.nii").metadata.nifti).header.Get(Nifti::kCalMax), 0);
}

}  // namespace
}  // namespace tilery
