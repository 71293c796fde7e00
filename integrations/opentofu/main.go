// Command terraform-provider-ingot is the provider of Ingot for OpenTofu, which starts it.
package main

import (
	"context"
	"log"

	"github.com/hashicorp/terraform-plugin-framework/providerserver"

	"github.com/ingot-metal/ingot/integrations/opentofu/ingot"
)

// version is set when the program is linked.
var version = "dev"

func main() {
	err := providerserver.Serve(context.Background(), ingot.New(version),
		providerserver.ServeOpts{Address: "registry.opentofu.org/ingot-metal/ingot"})
	if err != nil {
		log.Fatal(err)
	}
}
