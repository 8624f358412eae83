// Runs the stages of a bundle that `placekit export` wrote, with OpenVINO alone:
//
//     run_bundle FOLDER INPUT.f32 OUTPUT.f32 DEVICE...     one device per stage, as in manifest.json; CPU for all without
//
// An input of a stage is a Parameter called "op:port", an output a Result called "op:port:out": a tensor between stages has
// the same "op:port" on both sides. Stages are numbered in an order in which they can run. This program runs one sample
// through them; a service gives each stage a thread and a queue, and starts a sample while later stages work on earlier ones.
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <string>
#include <vector>

#include <openvino/openvino.hpp>

struct Stage {
    ov::InferRequest request;
    std::vector<std::pair<std::string, size_t>> inputs, outputs;  // "op:port" and the position in the model
};

static Stage load(ov::Core& core, const std::string& file, const std::string& device) {
    auto model = core.read_model(file);
    Stage stage;
    for (size_t i = 0; i < model->inputs().size(); ++i)
        stage.inputs.emplace_back(model->input(i).get_node()->get_friendly_name(), i);
    for (size_t i = 0; i < model->outputs().size(); ++i) {
        auto name = model->output(i).get_node()->get_friendly_name();
        stage.outputs.emplace_back(name.substr(0, name.rfind(":out")), i);
    }
    stage.request = core.compile_model(model, device, ov::hint::inference_precision(ov::element::f32)).create_infer_request();
    return stage;
}

int main(int argc, char** argv) {
    if (argc < 4) {
        std::cerr << "usage: run_bundle FOLDER INPUT.f32 OUTPUT.f32 [DEVICE...]\n";
        return 2;
    }
    ov::Core core;
    std::vector<Stage> stages;
    for (int n = 0; std::filesystem::exists(std::string(argv[1]) + "/" + std::to_string(n) + ".xml"); ++n)
        stages.push_back(load(core, std::string(argv[1]) + "/" + std::to_string(n) + ".xml", 4 + n < argc ? argv[4 + n] : "CPU"));

    std::map<std::string, ov::Tensor> tensors;
    std::ifstream input(argv[2], std::ios::binary);
    for (auto& stage : stages) {
        for (auto& [name, i] : stage.inputs) {
            auto found = tensors.find(name);
            if (found != tensors.end()) {
                stage.request.set_input_tensor(i, found->second);
            } else {  // an input of the whole model
                auto tensor = stage.request.get_input_tensor(i);
                input.read(static_cast<char*>(tensor.data()), tensor.get_byte_size());
                tensors[name] = tensor;
            }
        }
        stage.request.infer();
        for (auto& [name, i] : stage.outputs) tensors[name] = stage.request.get_output_tensor(i);
    }
    std::ofstream output(argv[3], std::ios::binary);
    for (auto& [name, i] : stages.back().outputs) {
        auto tensor = stages.back().request.get_output_tensor(i);
        output.write(static_cast<const char*>(tensor.data()), tensor.get_byte_size());
        std::cout << name << " " << tensor.get_shape() << "\n";
    }
    return input ? 0 : 1;
}
