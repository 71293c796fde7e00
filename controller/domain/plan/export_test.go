package plan

// ProviderActions are the actions that a plan may hold, with the parameters of each.
var ProviderActions = providerActions
