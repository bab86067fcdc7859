"""A PyTorch module becomes a pp.model with its weights: what scripts/import-torch is made of.

command    arguments, and the order of what follows
factory    the module and its example inputs
export     torch.export's graph
trace      the graph as steps; static evaluates what is constant, noops drops what does nothing
draws      dropout and its relatives, which draw from our generator
named      steps that are one of our named operations
grouping   steps into layers, by the modules they come from
layers     groups into the document's layers; calls: those of aten
importer   all of these, one after the other
document   layout and names of files
weights    safetensors
interpreter  runs what was written: the document's meaning in forty lines of operations
verify     the document against the module
data       scripts/export-data
profile    times and bytes of the layers, taken in PyTorch
"""
