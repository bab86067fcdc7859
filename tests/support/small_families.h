// The built-in model families in small sizes, for tests that run all of them; families_run_test.cpp sees to it
// that none is missing.
#pragma once

#include <string_view>

namespace small {

inline constexpr std::string_view kPlain[] = {"mlp:inputs=20,width=16,layers=4,dropout=0.2", "lenet5"};
inline constexpr std::string_view kImages[] = {"alexnet:classes=10,image=63,width=32",
                                               "alexnet:classes=10,image=63,width=32,original=1",
                                               "vgg11:classes=10,image=32,width=32,batch_norm=1",
                                               "vgg13:classes=10,image=32,width=32",
                                               "vgg16:classes=10,image=32,width=32",
                                               "vgg19:classes=10,image=32,width=32",
                                               "squeezenet1_0:classes=10,image=32",
                                               "squeezenet1_1:classes=10,image=32",
                                               "mobilenet_v2:classes=10,image=32",
                                               "inception_v3:classes=10,image=75",
                                               "unet:image=64,B=2,C=4",
                                               "east:image=32"};
inline constexpr std::string_view kBlocks[] = {
    "resnet18:classes=10,image=32,width=8",       "resnet34:classes=10,image=32,width=8",
    "resnet50:classes=10,image=32,width=4",       "resnet101:classes=10,image=32,width=4",
    "resnet152:classes=10,image=32,width=4",      "resnext50:classes=10,image=32,width=16",
    "resnext101:classes=10,image=32,width=8",     "wide_resnet50:classes=10,image=32,width=4",
    "wide_resnet101:classes=10,image=32,width=4", "densenet121:classes=10,image=32,growth=4",
    "amoebanet_d:classes=10,image=32,L=3,D=16"};
inline constexpr std::string_view kEncoders[] = {
    "transformer_encoder:layers=2,width=16,heads=2,hidden=24,vocabulary=13,sequence=8,classes=5",
    "bert_base:layers=2,width=16,heads=2,vocabulary=13,sequence=8",
    "bert_large:layers=1,width=16,heads=4,vocabulary=13,sequence=8",
    "bert_48:layers=3,width=8,heads=1,vocabulary=13,sequence=8,tied=0"};
/// At each position of their tokens they say the next one.
inline constexpr std::string_view kDecoders[] = {
    "transformer:layers=2,width=16,heads=2,vocabulary=13,sequence=8",
    "gpt2:layers=2,width=16,heads=2,vocabulary=13,sequence=8",
    "gpt2_medium:layers=1,width=16,heads=4,vocabulary=13,sequence=8",
    "gpt2_large:layers=1,width=20,heads=2,vocabulary=13,sequence=8",
    "gpt2_xl:layers=1,width=25,heads=5,vocabulary=13,sequence=8",
    "awd_lstm:width=8,hidden=12,vocabulary=13,sequence=6",
    "gpt_neox:layers=2,width=16,heads=2,hidden=24,vocabulary=13,sequence=8",
    "opt:layers=2,width=16,heads=2,hidden=24,vocabulary=13,sequence=8,positions=9",
    "llama:layers=2,width=16,heads=4,kv_heads=2,head_width=6,hidden=24,vocabulary=13,sequence=8",
    "mistral:layers=2,width=16,heads=4,kv_heads=1,head_width=4,hidden=24,vocabulary=13,sequence=8,window=3",
    "phi3:layers=2,width=16,heads=2,kv_heads=1,head_width=8,hidden=24,vocabulary=13,sequence=8",
    "qwen2:layers=2,width=16,heads=4,kv_heads=2,head_width=4,hidden=24,vocabulary=13,sequence=8",
    "gemma2:layers=2,width=16,heads=4,kv_heads=2,head_width=6,hidden=24,vocabulary=13,sequence=8,window=3",
    "smollm:layers=2,width=15,heads=3,kv_heads=1,head_width=4,hidden=24,vocabulary=13,sequence=8",
    "qwen3:layers=2,width=16,heads=4,kv_heads=2,head_width=6,hidden=24,vocabulary=13,sequence=8"};
/// The same of their second input, with the first one before them.
inline constexpr std::string_view kTranslators[] = {
    "t5_small:layers=2,width=16,heads=2,hidden=24,vocabulary=13,source=9,target=7",
    "gnmt:layers=3,width=8,vocabulary=13,source=5,target=4",
    "s2vt:frames=4,features=10,width=6,hidden=8,vocabulary=13,words=3"};
/// Of decoders and translators alike.
inline constexpr int kVocabulary = 13;

}  // namespace small
