#include "libprofile/model/families/catalogue.h"

#include <utility>

namespace pp::model {
namespace {

FamilyArgument classes_argument(double classes = 1000) {
  return {"classes", classes, 1, 1 << 20, "output classes"};
}
FamilyArgument image_argument(double side, double smallest) {
  return {"image", side, smallest, 4096, "side of the input image, 3 channels"};
}
FamilyArgument dropout_argument(double p, std::string_view where) {
  return {"dropout", p, 0, 0.99, where, false};
}

std::vector<Family> plain_families() {
  return {
      {{"mlp",
        "linear layers with relu between them",
        {{"inputs", 784, 1, 1 << 20, "input features"},
         {"width", 512, 1, 1 << 20, "features of the hidden layers"},
         {"layers", 3, 1, 10000, "linear layers"},
         classes_argument(10),
         dropout_argument(0, "after each relu")}},
       build_mlp},
      {{"lenet5",
        "two convolutions and three linear layers for small grey images",
        {classes_argument(10), {"image", 28, 4, 4096, "side of the input image, 1 channel"}}},
       build_lenet5},
  };
}

Family vgg(std::string_view name, std::string_view summary, Build build) {
  return {{name,
           summary,
           {classes_argument(),
            image_argument(224, 32),
            {"batch_norm", 0, 0, 1, "1: batch norm after each convolution"},
            dropout_argument(0.5, "in the classifier"),
            {"width", 4096, 1, 1 << 16, "of the classifier's hidden layers"}}},
          build};
}

Family resnet(std::string_view name, std::string_view summary, Build build) {
  return {
      {name,
       summary,
       {classes_argument(), image_argument(224, 32), {"width", 64, 1, 4096, "channels of the first layers"}}},
      build};
}

Family squeezenet(std::string_view name, std::string_view summary, Build build) {
  return {{name,
           summary,
           {classes_argument(), image_argument(224, 32), dropout_argument(0.5, "in the classifier")}},
          build};
}

std::vector<Family> image_families() {
  return {
      {{"alexnet",
        "five convolutions and three linear layers",
        {classes_argument(),
         image_argument(224, 63),
         {"original", 0, 0, 1, "1: two groups and response norms, as in 2012; 0: one column, as in 2014"},
         dropout_argument(0.5, "in the classifier"),
         {"width", 4096, 1, 1 << 16, "of the classifier's hidden layers"}}},
       build_alexnet},
      vgg("vgg11", "VGG with 11 layers (A)", build_vgg11),
      vgg("vgg13", "VGG with 13 layers (B)", build_vgg13),
      vgg("vgg16", "VGG with 16 layers (D)", build_vgg16),
      vgg("vgg19", "VGG with 19 layers (E)", build_vgg19),
      resnet("resnet18", "residual network of 18 layers, basic blocks", build_resnet18),
      resnet("resnet34", "residual network of 34 layers, basic blocks", build_resnet34),
      resnet("resnet50", "residual network of 50 layers, bottlenecks", build_resnet50),
      resnet("resnet101", "residual network of 101 layers, bottlenecks", build_resnet101),
      resnet("resnet152", "residual network of 152 layers, bottlenecks", build_resnet152),
      resnet("resnext50", "ResNeXt-50 32x4d: bottlenecks of 32 groups", build_resnext50),
      resnet("resnext101", "ResNeXt-101 32x8d: bottlenecks of 32 groups", build_resnext101),
      resnet("wide_resnet50", "ResNet-50 with bottlenecks twice as wide", build_wide_resnet50),
      resnet("wide_resnet101", "ResNet-101 with bottlenecks twice as wide", build_wide_resnet101),
      squeezenet("squeezenet1_0", "SqueezeNet 1.0: fire modules", build_squeezenet1_0),
      squeezenet("squeezenet1_1", "SqueezeNet 1.1: pools earlier", build_squeezenet1_1),
      {{"mobilenet_v2",
        "inverted residuals with depthwise convolutions",
        {classes_argument(), image_argument(224, 32), dropout_argument(0.2, "before the classifier")}},
       build_mobilenet_v2},
      {{"densenet121",
        "every layer of a block sees all earlier ones",
        {classes_argument(), image_argument(224, 32), {"growth", 32, 1, 1024, "channels that a layer adds"}}},
       build_densenet121},
      {{"inception_v3",
        "parallel branches with kernels of several shapes, no auxiliary classifier",
        {classes_argument(), image_argument(299, 75), dropout_argument(0.5, "before the classifier")}},
       build_inception_v3},
      {{"amoebanet_d",
        "evolved cells, L normal ones and D filters",
        {classes_argument(),
         image_argument(224, 32),
         {"L", 18, 3, 3000, "normal cells, a multiple of 3"},
         {"D", 208, 8, 1 << 16, "filters, a multiple of 8"}}},
       build_amoebanet_d},
      {{"unet",
        "segmentation with long skips",
        {image_argument(192, 32),
         {"B", 5, 1, 1000, "convolutions per level"},
         {"C", 64, 2, 1 << 12, "channels of the first level, an even number"}}},
       build_unet},
      {{"east",
        "text detection: VGG16 trunk, merged features, score and rotated boxes",
        {image_argument(512, 32), {"batch_norm", 1, 0, 1, "1: batch norm after each convolution"}}},
       build_east},
  };
}

/// Sizes of a language model and their defaults.
struct Sizes {
  double layers, width, heads, vocabulary, sequence, tied;
};

std::vector<FamilyArgument> language_arguments(const Sizes& sizes) {
  return {{"layers", sizes.layers, 1, 1000, "blocks of attention and perceptron"},
          {"width", sizes.width, 1, 1 << 16, "features per position"},
          {"heads", sizes.heads, 1, 1 << 16, "attention heads, a divisor of width"},
          {"vocabulary", sizes.vocabulary, 1, 1 << 24, "tokens"},
          {"sequence", sizes.sequence, 1, 1 << 16, "positions"},
          dropout_argument(0.1, "on embeddings, attention and both branches"),
          {"tied", sizes.tied, 0, 1, "1: the head uses the token embedding's weights"}};
}

Family gpt2(std::string_view name, std::string_view summary, double layers, double width) {
  return {{name, summary, language_arguments({layers, width, width / 64, 50257, 1024, 1})}, build_gpt2};
}

Family bert(std::string_view name, std::string_view summary, double layers, double width) {
  return {{name, summary, language_arguments({layers, width, width / 64, 30522, 512, 1})}, build_bert};
}

/// Of a published decoder with rotary positions.
struct DecoderSizes {
  double layers, width, heads, kv_heads, head_width, hidden, vocabulary, rope_base, eps, tied;
};

Family decoder(std::string_view name, std::string_view summary, const DecoderSizes& sizes) {
  return {{name,
           summary,
           {{"layers", sizes.layers, 1, 2048, "blocks of attention and perceptron"},
            {"width", sizes.width, 1, 1 << 16, "features per position"},
            {"heads", sizes.heads, 1, 1 << 16, "heads of queries"},
            {"kv_heads", sizes.kv_heads, 1, 1 << 16, "heads of keys and values, a divisor of heads"},
            {"head_width", sizes.head_width, 2, 1 << 10, "features of a head, an even number"},
            {"hidden", sizes.hidden, 1, 1 << 18, "features inside the perceptrons"},
            {"vocabulary", sizes.vocabulary, 1, 1 << 20, "tokens"},
            {"sequence", 2048, 1, 1 << 20, "positions"},
            {"rope_base", sizes.rope_base, 1, 1e12, "of the rotary wavelengths", false},
            {"eps", sizes.eps, 0, 1, "of the norms", false},
            {"tied", sizes.tied, 0, 1, "1: the head uses the embedding's weights"}}},
          build_rotary_decoder};
}

Family windowed(Family family, double window) {
  family.row.arguments.push_back(
      {"window", window, 1, 1 << 30, "positions that attention sees; gemma2: of every other block"});
  return family;
}

/// With a published configuration as defaults, in the order of the papers.
std::vector<Family> decoder_families() {
  const auto plain = [](double layers, double width, double heads, double hidden, double vocabulary) {
    return std::vector<FamilyArgument>{{"layers", layers, 1, 2048, "blocks of attention and perceptron"},
                                       {"width", width, 1, 1 << 16, "features per position"},
                                       {"heads", heads, 1, 1 << 16, "attention heads, a divisor of width"},
                                       {"hidden", hidden, 1, 1 << 18, "features inside the perceptrons"},
                                       {"vocabulary", vocabulary, 1, 1 << 20, "tokens"},
                                       {"sequence", 2048, 1, 1 << 20, "positions"}};
  };
  Family neox{{"gpt_neox", "GPT-NeoX, as Pythia-6.9B", plain(32, 4096, 32, 16384, 50432)}, build_gpt_neox};
  neox.row.arguments.push_back({"tied", 0, 0, 1, "1: the head uses the embedding's weights"});
  Family opt{{"opt", "OPT, as OPT-125M", plain(12, 768, 12, 3072, 50272)}, build_opt};
  opt.row.arguments.push_back({"positions", 2048, 1, 1 << 20, "rows of the table of positions"});
  opt.row.arguments.push_back(dropout_argument(0.1, "on both branches"));
  opt.row.arguments.push_back({"tied", 1, 0, 1, "1: the head uses the embedding's weights"});
  return {std::move(neox),
          std::move(opt),
          decoder("llama", "Llama, as Llama-3-8B", {32, 4096, 32, 8, 128, 14336, 128256, 500000, 1e-5, 0}),
          windowed(decoder("mistral", "Mistral, as Mistral-7B",
                           {32, 4096, 32, 8, 128, 14336, 32000, 10000, 1e-5, 0}),
                   4096),
          decoder("phi3", "Phi-3, as Phi-3-mini", {32, 3072, 32, 32, 96, 8192, 32064, 10000, 1e-5, 0}),
          decoder("qwen2", "Qwen2, as Qwen2-7B", {28, 3584, 28, 4, 128, 18944, 152064, 1e6, 1e-6, 0}),
          windowed(decoder("gemma2", "Gemma 2, as Gemma-2-9B",
                           {42, 3584, 16, 8, 256, 14336, 256000, 10000, 1e-6, 1}),
                   4096),
          decoder("smollm", "SmolLM2, as SmolLM2-135M", {30, 576, 9, 3, 64, 1536, 49152, 100000, 1e-5, 1}),
          decoder("qwen3", "Qwen3, as Qwen3-8B", {36, 4096, 32, 8, 128, 12288, 151936, 1e6, 1e-6, 0})};
}

std::vector<Family> language_families() {
  return {
      {{"transformer", "decoder-only language model", language_arguments({4, 128, 4, 256, 64, 0})},
       build_transformer},
      {{"transformer_encoder",
        "encoder that classifies sequences",
        {{"layers", 6, 1, 1000, "blocks of attention and perceptron"},
         {"width", 512, 2, 1 << 16, "features per position, an even number"},
         {"heads", 8, 1, 1 << 16, "attention heads, a divisor of width"},
         {"hidden", 2048, 1, 1 << 18, "features inside the perceptrons"},
         {"vocabulary", 37000, 1, 1 << 24, "tokens"},
         {"sequence", 128, 1, 1 << 16, "positions"},
         classes_argument(2),
         dropout_argument(0.1, "on embeddings, attention and both branches")}},
       build_transformer_encoder},
      bert("bert_base", "BERT of 12 layers, masked language model", 12, 768),
      bert("bert_large", "BERT of 24 layers, masked language model", 24, 1024),
      bert("bert_48", "BERT of 48 layers, masked language model", 48, 1024),
      gpt2("gpt2", "GPT-2 small, 12 layers", 12, 768),
      gpt2("gpt2_medium", "GPT-2 medium, 24 layers", 24, 1024),
      gpt2("gpt2_large", "GPT-2 large, 36 layers", 36, 1280),
      gpt2("gpt2_xl", "GPT-2 XL, 48 layers", 48, 1600),
      {{"t5_small",
        "encoder and decoder with relative positions",
        {{"layers", 6, 1, 1000, "blocks of the encoder, and of the decoder"},
         {"width", 512, 1, 1 << 16, "features per position"},
         {"heads", 8, 1, 1 << 16, "attention heads, a divisor of width"},
         {"hidden", 2048, 1, 1 << 18, "features inside the perceptrons"},
         {"vocabulary", 32128, 1, 1 << 24, "tokens"},
         {"source", 512, 1, 1 << 16, "positions of the encoder"},
         {"target", 114, 1, 1 << 16, "positions of the decoder"},
         dropout_argument(0.1, "on embeddings, attention and branches"),
         {"tied", 1, 0, 1, "1: both embeddings and the head share their weights"}}},
       build_t5},
  };
}

std::vector<Family> recurrent_families() {
  return {
      {{"gnmt",
        "translation by LSTMs with attention",
        {{"layers", 8, 2, 1000, "LSTMs of the encoder, and of the decoder"},
         {"width", 1024, 1, 1 << 16, "features of embeddings, states and attention"},
         {"vocabulary", 32320, 1, 1 << 24, "tokens"},
         {"source", 50, 1, 1 << 16, "positions of the encoder"},
         {"target", 50, 1, 1 << 16, "positions of the decoder"},
         dropout_argument(0.2, "before each LSTM"),
         {"tied", 1, 0, 1, "1: encoder and decoder share the embedding"}}},
       build_gnmt},
      {{"awd_lstm",
        "language model of regularised LSTMs",
        {{"layers", 3, 1, 1000, "LSTMs"},
         {"width", 400, 1, 1 << 16, "features of the embedding and of the last LSTM"},
         {"hidden", 1150, 1, 1 << 16, "features of the other LSTMs"},
         {"vocabulary", 10000, 1, 1 << 24, "tokens"},
         {"sequence", 70, 1, 1 << 16, "positions"},
         {"embedding_dropout", 0.1, 0, 0.99, "on words of the embedding", false},
         {"input_dropout", 0.4, 0, 0.99, "on the first LSTM's input", false},
         {"hidden_dropout", 0.25, 0, 0.99, "between LSTMs", false},
         {"output_dropout", 0.4, 0, 0.99, "on the last LSTM's output", false},
         {"weight_dropout", 0.5, 0, 0.99, "on hidden-to-hidden weights", false},
         {"tied", 1, 0, 1, "1: the head uses the embedding's weights"}}},
       build_awd_lstm},
      {{"s2vt",
        "captions for videos by two LSTMs",
        {{"frames", 80, 1, 1 << 16, "frames of a video"},
         {"features", 4096, 1, 1 << 20, "features of a frame"},
         {"width", 500, 1, 1 << 16, "features of the embeddings"},
         {"hidden", 1000, 1, 1 << 16, "features of the states"},
         {"vocabulary", 12594, 1, 1 << 24, "words"},
         {"words", 20, 1, 1 << 16, "words of a caption"},
         dropout_argument(0.5, "on both embeddings and before the classifier")}},
       build_s2vt},
  };
}

}  // namespace

const std::vector<Family>& families() {
  static const std::vector<Family> table = [] {
    std::vector<Family> all = plain_families();
    for (const std::vector<Family>& group :
         {image_families(), language_families(), decoder_families(), recurrent_families()})
      all.insert(all.end(), group.begin(), group.end());
    return all;
  }();
  return table;
}

}  // namespace pp::model
