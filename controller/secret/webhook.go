package secret

func webhookName(webhookID, secretID string) string {
	return "webhook\x00" + webhookID + "\x00" + secretID
}

// SealWebhook seals one of the secrets of a webhook under its names.
func (b *Box) SealWebhook(webhookID, secretID string, plain []byte) []byte {
	return b.Seal(webhookName(webhookID, secretID), plain)
}

// OpenWebhook opens a secret that was sealed under these names; ErrSealed where that is not possible.
func (b *Box) OpenWebhook(webhookID, secretID string, sealed []byte) ([]byte, error) {
	return b.Open(webhookName(webhookID, secretID), sealed)
}
