// Parameter counts of the built-in families against published ones.
#include <cmath>
#include <initializer_list>
#include <string_view>

#include "libprofile/model/families/families.h"
#include "tests/support/doctest.h"

namespace family_parameters_test {

using namespace pp;

namespace {

struct Published {
  std::string_view spec;
  std::int64_t parameters;
};

std::int64_t parameters(std::string_view spec) { return parameter_count(resolve(model::build_family(spec))); }

std::int64_t rounded(std::string_view spec, double unit) {
  return std::llround(static_cast<double>(parameters(spec)) / unit);
}

void check_all(std::initializer_list<Published> table) {
  for (const Published& row : table) {
    CAPTURE(row.spec);
    CHECK(parameters(row.spec) == row.parameters);
  }
}

}  // namespace

TEST_SUITE("libprofile/model/family_parameters") {
  TEST_CASE("image classifiers have the parameters of torchvision's") {
    // "num_params" of the ImageNet weights in the documentation of torchvision.models.
    check_all({
        {"alexnet", 61'100'840},
        {"vgg11", 132'863'336},
        {"vgg13", 133'047'848},
        {"vgg16", 138'357'544},
        {"vgg19", 143'667'240},
        {"vgg11:batch_norm=1", 132'868'840},
        {"vgg13:batch_norm=1", 133'053'736},
        {"vgg16:batch_norm=1", 138'365'992},
        {"vgg19:batch_norm=1", 143'678'248},
        {"resnet18", 11'689'512},
        {"resnet34", 21'797'672},
        {"resnet50", 25'557'032},
        {"resnet101", 44'549'160},
        {"resnet152", 60'192'808},
        {"resnext50", 25'028'904},   // 32x4d
        {"resnext101", 88'791'336},  // 32x8d
        {"wide_resnet50", 68'883'240},
        {"wide_resnet101", 126'886'696},
        {"squeezenet1_0", 1'248'424},
        {"squeezenet1_1", 1'235'496},
        {"mobilenet_v2", 3'504'872},
        {"densenet121", 7'978'856},
    });
  }

  TEST_CASE("inception_v3 has torchvision's parameters but for the auxiliary classifier's") {
    // AuxLogits: 1x1 from 768 to 128 and 5x5 to 768 with batch norm, a linear layer to 1000 classes.
    const std::int64_t auxiliary = (768 * 128 + 2 * 128) + (128 * 768 * 25 + 2 * 768) + (768 * 1000 + 1000);
    CHECK(parameters("inception_v3") == 27'161'264 - auxiliary);
  }

  TEST_CASE("the original alexnet has the parameters of Caffe's bvlc_alexnet") {
    // Krizhevsky et al. 2012 say 60 million. Convolutions 34,944 + 307,456 + 885,120 + 663,936 + 442,624,
    // linear layers 37,752,832 + 16,781,312 + 4,097,000.
    CHECK(parameters("alexnet:original=1") == 60'965'224);
  }

  TEST_CASE("small networks") {
    // LeNet-5 with a fully connected second convolution: 156 + 2416 + 48120 + 10164 + 850.
    check_all({{"lenet5", 61'706}});
  }

  TEST_CASE("transformers have the parameters of the Hugging Face models") {
    check_all({
        // GPT-2: 50257*w + 1024*w + layers * (12 w^2 + 13 w) + 2 w for widths w of 768, 1024, 1280, 1600.
        {"gpt2", 124'439'808},
        {"gpt2_medium", 354'823'168},
        {"gpt2_large", 774'030'080},
        {"gpt2_xl", 1'557'611'200},
        {"transformer:layers=12,width=768,heads=12,vocabulary=50257,sequence=1024,tied=1", 124'439'808},
        // BertForMaskedLM (bert-base-uncased, bert-large-uncased), whose head shares the embedding. The paper's
        // 110
        // and 340 million include the pooler of next-sentence prediction.
        {"bert_base", 109'514'298},
        {"bert_large", 335'174'458},
        // T5ForConditionalGeneration (t5-small).
        {"t5_small", 60'506'624},
    });
  }

  TEST_CASE("bert_48 has the 640 million of the pipeline papers") {
    // DAPPLE (Fan et al. 2021). BERT-large and 24 more layers of 12 w^2 + 13 w, w = 1024.
    CHECK(parameters("bert_48") == 335'174'458 + 24 * (12 * 1024 * 1024 + 13 * 1024));
    CHECK(rounded("bert_48", 1e7) == 64);
  }

  TEST_CASE("the transformer encoder's layers have torch.nn.TransformerEncoderLayer's parameters") {
    // Width 512, hidden 2048: attention 4 (512^2 + 512), perceptron 2*512*2048 + 2048 + 512, two norms 4*512.
    const std::int64_t layer = 4 * (512 * 512 + 512) + 2 * 512 * 2048 + 2048 + 512 + 4 * 512;
    CHECK(layer == 3'152'384);
    CHECK(parameters("transformer_encoder") == 37000 * 512 + 6 * layer + 2 * 513);
  }

  TEST_CASE("recurrent networks") {
    // "MLPerf GNMT has 160671297 parameters": the tests of NVIDIA's apex. Embedding 33,095,680; encoder
    // 16,793,600 + 12,591,104 + 2 * 8,396,800; decoder 8,396,800 + 3 * 12,591,104, attention 2,099,201,
    // classifier 33,128,000.
    CHECK(parameters("gnmt:layers=4") == 160'671'297);
    // The paper says 24 million on Penn Treebank and 33 million on WikiText-2. Embedding 400 v and the head's
    // bias v; LSTMs 4600 (400 + 1150 + 2), 4600 (1150 + 1150 + 2), 1600 (1150 + 400 + 2).
    const std::int64_t lstms = 7'139'200 + 10'589'200 + 2'483'200;
    CHECK(parameters("awd_lstm") == 401 * 10'000 + lstms);
    CHECK(parameters("awd_lstm:vocabulary=33278") == 401 * 33'278 + lstms);
    CHECK(parameters("awd_lstm") / 1'000'000 == 24);
    CHECK(parameters("awd_lstm:vocabulary=33278") / 1'000'000 == 33);
    // No count is published: embeddings 4096*500 + 500 and 12594*500, LSTMs 4000 (500 + 1000 + 2) and
    // 4000 (1000 + 500 + 1000 + 2), classifier 12594 * 1001.
    CHECK(parameters("s2vt") == 2'048'500 + 6'297'000 + 6'008'000 + 10'008'000 + 12'606'594);
  }

  TEST_CASE("amoebanet_d has the published millions") {
    // torchgpipe, benchmarks/amoebanetd-memory: 81.5M, 319.0M, 542.7M, 1.06B, 1.84B; GPipe's table 1 has the
    // same within 1 %.
    CHECK(rounded("amoebanet_d", 1e5) == 815);
    CHECK(rounded("amoebanet_d:D=416", 1e5) == 3190);
    CHECK(rounded("amoebanet_d:D=544", 1e5) == 5427);
    CHECK(rounded("amoebanet_d:L=36,D=544", 1e7) == 106);
    CHECK(rounded("amoebanet_d:L=72,D=512", 1e7) == 184);
  }

  TEST_CASE("unet has the published millions") {
    // torchgpipe, benchmarks/unet-memory: 362.2M, 2.21B, 4.99B, 7.80B, 15.82B.
    CHECK(rounded("unet:B=6,C=72", 1e5) == 3622);
    CHECK(rounded("unet:B=11,C=128", 1e7) == 221);
    CHECK(rounded("unet:B=24,C=128", 1e7) == 499);
    CHECK(rounded("unet:B=24,C=160", 1e7) == 780);
    CHECK(rounded("unet:B=48,C=160", 1e7) == 1582);
  }

  TEST_CASE("east is VGG16's features, three merges and three heads") {
    // No count is published. VGG16 without its classifier: 138,357,544 - 123,642,856, and 2 per channel for
    // batch norm.
    const std::int64_t trunk = 14'714'688 + 2 * (2 * 64 + 2 * 128 + 3 * 256 + 6 * 512);
    // 1x1 and 3x3 of each merge with batch norm, then the last 3x3.
    const std::int64_t merges = (1024 * 128 + 128 * 128 * 9 + 4 * 128) + (384 * 64 + 64 * 64 * 9 + 4 * 64) +
                                (192 * 32 + 32 * 32 * 9 + 4 * 32) + (32 * 32 * 9 + 2 * 32);
    CHECK(parameters("east") == trunk + merges + 6 * 33);
  }
}

}  // namespace family_parameters_test
