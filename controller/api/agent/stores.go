package agent

import (
	agentstore "github.com/ingot-metal/ingot/controller/store/agent"
	credentialstore "github.com/ingot-metal/ingot/controller/store/credential"
	identitystore "github.com/ingot-metal/ingot/controller/store/identity"
	operationstore "github.com/ingot-metal/ingot/controller/store/operation"
	sessionstore "github.com/ingot-metal/ingot/controller/store/session"
	sitestore "github.com/ingot-metal/ingot/controller/store/site"
)

// Stores are what the service reads and writes.
type Stores struct {
	Agents      *agentstore.Store
	Credentials *credentialstore.Store
	Identities  *identitystore.Store
	Operations  *operationstore.Store
	Sessions    *sessionstore.Store
	Sites       *sitestore.Store
}
